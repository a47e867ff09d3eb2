// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/nccl.h"

#include <fmt/format.h>

#include <exception>

#include "braid/core/accelerator.h"
#include "braid/core/error.h"
#include "comm/plugin.h"

namespace braid::comm {

std::string nccl_missing() {
  if (accelerator() == nullptr) return accelerator_status().reason;
  const auto missing = reinterpret_cast<NcclMissing>(open_symbol(nccl_missing_symbol));
  return missing == nullptr ? "libbraid_cuda.so has another version" : missing();
}

std::shared_ptr<Backend> nccl(const Store& store, int rank, int size, NcclOptions options) {
  if (const std::string reason = nccl_missing(); !reason.empty())
    throw CommError({.what = fmt::format("NCCL cannot be used: {}", reason),
                     .why = "NCCL moves GPU memory, and comes with libbraid_cuda",
                     .fix = "use Gloo, or build libbraid_cuda with NCCL on a machine with a GPU"});
  const Store board = store.under("nccl");
  NcclPlace place = {
      .rank = rank,
      .size = size,
      .device = options.device,
      .timeout_seconds = options.timeout_seconds,
      .set = [board](const std::string& key, const std::string& value) { board.set(key, value); },
      // By a connection of its own: on a shared one a thread that waits lets no other one through.
      .get =
          [board, options](const std::string& key) {
            return board.clone().get(key, options.timeout_seconds);
          }};
  try {
    return std::shared_ptr<Backend>(
        reinterpret_cast<OpenNccl>(open_symbol(open_nccl_symbol))(place));
  } catch (const Error&) {
    throw;
  } catch (const std::exception& error) {
    throw CommError(
        {.what = fmt::format("rank {} of {} on GPU {} does not reach all others over NCCL: {}",
                             rank, size, options.device, error.what()),
         .why = "every rank has a GPU of its own, and all meet at the start",
         .fix = "look for what the other ranks printed; NCCL_DEBUG=INFO says more"});
  }
}

}  // namespace braid::comm
