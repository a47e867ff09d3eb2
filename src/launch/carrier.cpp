// SPDX-License-Identifier: BSD-3-Clause
// Which GPU is this rank's, and what carries its tensors to the other ranks.
#include <fmt/format.h>

#include "braid/comm/mismatch.h"
#include "braid/comm/mpi.h"
#include "braid/comm/nccl.h"
#include "braid/core/accelerator.h"
#include "braid/core/error.h"
#include "braid/launch/world.h"

namespace braid::launch {

int gpu_of(const Environment& here, const Options& options) {
  if (accelerator() == nullptr)
    throw ConfigError({.what = "this rank was to use a GPU, but there is no usable GPU",
                       .why = accelerator_status().reason,
                       .fix = "run braid doctor, or leave the device at cpu"});
  const int count = accelerator()->count();
  if (count == 1) return 0;
  if (here.local_rank < count) return here.local_rank;
  if (options.share_gpu) return here.local_rank % count;
  throw ConfigError(
      {.what = fmt::format("rank {} is number {} on {}, which has {} GPUs", here.rank,
                           here.local_rank, here.host, count),
       .why = "each rank needs a GPU of its own",
       .fix = "start fewer ranks a host, or --set launch.share_gpu=true to try it out"});
}

void check_backend(const Options& options, c10::Device device) {
  const std::string missing = options.backend == "nccl"  ? comm::nccl_missing()
                              : options.backend == "mpi" ? comm::mpi_missing()
                                                         : "";
  const bool wrong_device = options.backend == "nccl" && !device.is_cuda();
  const bool wrong_memory = options.backend == "mpi" && device.is_cuda();
  if (missing.empty() && !wrong_device && !wrong_memory) return;
  throw ConfigError({.what = fmt::format("launch.backend = {} on {}", options.backend,
                                         device.is_cuda() ? "a GPU" : "the CPU"),
                     .why = wrong_device   ? "NCCL carries tensors of GPUs alone"
                            : wrong_memory ? "MPI carries tensors of the host alone"
                                           : missing,
                     .fix = "--set launch.backend=auto"});
}

comm::Group carrier(const World& world, const Environment& here, const Options& options,
                    c10::Device device) {
  const double limit = timeouts(options).collective;
  const bool auto_nccl = options.backend == "auto" && device.is_cuda() && !options.share_gpu &&
                         comm::nccl_missing().empty();
  const auto group_over = [&](std::shared_ptr<comm::Backend> backend, const char* name) {
    return comm::Group(
        comm::checked(std::move(backend), world.store.under(name),
                      {.timeout_seconds = 0.8 * limit, .on = comm::wants_checks(here.debug)}));
  };
  if (options.backend == "mpi") return group_over(comm::mpi({.timeout_seconds = limit}), "mpi");
  if (options.backend != "nccl" && !auto_nccl) return world.control;
  return group_over(comm::nccl(world.store.under("nccl"), here.rank, here.world,
                               {.device = device.index(), .timeout_seconds = limit}),
                    "nccl");
}

}  // namespace braid::launch
