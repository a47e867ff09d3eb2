// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/job.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <utility>

#include "braid/comm/mismatch.h"
#include "braid/comm/mpi.h"
#include "braid/comm/nccl.h"
#include "braid/core/accelerator.h"
#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/core/thread.h"
#include "braid/train/layout.h"
#include "braid/train/trainer.h"

namespace braid::train {
namespace {

comm::WatchOptions watch_options(const launch::Environment& here, const launch::Options& options) {
  return {.timeouts = launch::timeouts(options), .store_rank = here.store_served ? -1 : 0};
}

// A launcher asks ranks to end when it sees that one is lost. This rank does so, but first it tells
// the others what it knows: without that it would be taken for lost, too.
class Deaf {
 public:
  Deaf() {
    struct sigaction action = {};
    action.sa_handler = SIG_IGN;
    for (size_t i = 0; i < asking.size(); ++i) ::sigaction(asking[i], &action, &before_[i]);
  }
  ~Deaf() {
    for (size_t i = 0; i < asking.size(); ++i) ::sigaction(asking[i], &before_[i], nullptr);
  }
  Deaf(const Deaf&) = delete;
  Deaf& operator=(const Deaf&) = delete;

 private:
  static constexpr std::array<int, 2> asking = {SIGTERM, SIGUSR1};
  std::array<struct sigaction, 2> before_ = {};
};

// The GPU of a rank: that of its number among the ranks of the host, where it sees several.
int gpu_of(const launch::Environment& here, const launch::Options& options) {
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

// What carries tensors of this device between the ranks; `world.ranks` is Gloo.
comm::Group carrier(const launch::World& world, const launch::Environment& here,
                    const launch::Options& options, c10::Device device) {
  const double limit = launch::timeouts(options).collective;
  const bool auto_nccl = options.backend == "auto" && device.is_cuda() && !options.share_gpu &&
                         comm::nccl_missing().empty();
  const auto group_over = [&](std::shared_ptr<comm::Backend> backend, const char* name) {
    return comm::Group(
        comm::checked(std::move(backend), world.store.under(name),
                      {.timeout_seconds = 0.8 * limit, .on = comm::wants_checks(here.debug)}));
  };
  if (options.backend == "mpi") return group_over(comm::mpi({.timeout_seconds = limit}), "mpi");
  if (options.backend != "nccl" && !auto_nccl) return world.ranks;
  return group_over(comm::nccl(world.store.under("nccl"), here.rank, here.world,
                               {.device = device.index(), .timeout_seconds = limit}),
                    "nccl");
}

void check_backend(const launch::Options& options, c10::Device device) {
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

// OpenMP ends the process where it cannot start its threads: this finds it out first.
void need_math_threads() { need_threads(at::get_num_threads() - 1, "compute (train.threads)"); }

}  // namespace

Job::Job(const RunOptions& options, const launch::Environment& here) {
  ranks_.mesh =
      parallel::Mesh(options.mesh, here.world, here.rank, static_cast<int>(options.train.zero));
  check_layout(options, ranks_.mesh);
  if (options.train.threads > 0) at::set_num_threads(static_cast<int>(options.train.threads));
  const bool on_gpu = device_of(options.train).is_cuda();
  if (on_gpu) ranks_.gpu = gpu_of(here, options.launch);
  const c10::Device device = device_of(options.train, ranks_.gpu);
  check_backend(options.launch, device);
  launch::Options meeting = options.launch;
  meeting.meet_dir = run_dir(options);
  world_ = launch::open_world(here, meeting);
  if (here.world == 1) {
    need_math_threads();
    return;
  }
  if (options.train.threads == 0) at::set_num_threads(world_.threads);
  need_math_threads();
  watch_ = std::make_unique<comm::Watch>(world_.control, world_.store,
                                         watch_options(here, options.launch));
  launch::refuse_shared_gpu(world_, on_gpu ? launch::gpu_name(here, ranks_.gpu) : "",
                            options.launch);
  const std::filesystem::path logs = std::filesystem::path(run_dir(options)) / "logs";
  if (launch::send_nccl_debug_to((logs / fmt::format("nccl-{}.log", here.rank)).string()))
    make_dirs(logs);
  ranks_.world = carrier(world_, here, options.launch, device);
  if (!(ranks_.world == world_.ranks)) watch_->add(ranks_.world);
  ranks_.control = world_.control;
  ranks_.latency = world_.latency_seconds;
  ranks_.progress = [this](const std::string& what) {
    now_ = what;
    watch_->progress(what);
  };
  ranks_.phase = [this](const char* what) { watch_->note(now_ + ", " + what); };
}

Job::~Job() {
  watch_.reset();
  if (!broken_) launch::leave(world_);  // else nobody is left to wait for
}

void Job::give_up(const std::exception& error) {
  if (watch_ == nullptr) return;
  const Deaf deaf;
  const auto* known = dynamic_cast<const Error*>(&error);
  broken_ = true;
  watch_->leave(known != nullptr ? known->complaint().what : error.what());
  const std::string verdict = watch_->verdict();
  if (verdict.empty() || dynamic_cast<const CommError*>(&error) == nullptr) return;
  throw LostRanks({.what = verdict, .why = known->complaint().why, .fix = known->complaint().fix});
}

}  // namespace braid::train
