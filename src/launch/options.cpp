// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/options.h"

namespace braid::launch {

void describe(Fields& fields, Options& options) {
  fields.field("timeout", options.timeout,
               "how long a rank waits for another in a collective; the limits of the store, a step "
               "and the start follow from it",
               {.at_least = 1});
  fields.field(
      "port", options.port,
      "port of the store where ranks meet; 0 = no port with --ranks, else that of the launcher",
      {.at_least = 0, .at_most = 65535});
  fields.field("backend", options.backend,
               "what carries tensors between ranks; auto: nccl between GPUs, else gloo",
               {.one_of = {"auto", "gloo", "nccl", "mpi"}});
  fields.field("share_gpu", options.share_gpu, "allow two ranks on one GPU");
  fields.field("interface", options.interface,
               "network interface towards the other ranks, empty: the one that leads to rank 0");
  fields.field("address", options.address, "of this host towards the other ranks");
}

comm::Timeouts timeouts(const Options& options) {
  const double one = options.timeout.count;
  return {.store = 0.5 * one, .collective = one, .step = 1.5 * one, .start = 2 * one};
}

}  // namespace braid::launch
