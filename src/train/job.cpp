// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/job.h"

#include <ATen/Parallel.h>
#include <fmt/format.h>

#include <array>
#include <csignal>
#include <filesystem>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/fs.h"
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

}  // namespace

Job::Job(const RunOptions& options, const launch::Environment& here) {
  ranks_.mesh =
      parallel::Mesh(options.mesh, here.world, here.rank, static_cast<int>(options.train.zero));
  check_layout(options, ranks_.mesh);
  if (options.train.threads > 0) at::set_num_threads(static_cast<int>(options.train.threads));
  const bool on_gpu = device_of(options.train).is_cuda();
  if (on_gpu) ranks_.gpu = launch::gpu_of(here, options.launch);
  const c10::Device device = device_of(options.train, ranks_.gpu);
  launch::check_backend(options.launch, device);
  launch::Options meeting = options.launch;
  meeting.meet_dir = run_dir(options);
  meeting.backend = "auto";  // the watch comes first
  meeting.set_threads = options.train.threads == 0;
  world_ = launch::open_world(here, meeting);
  if (here.world == 1) return;
  watch_ = std::make_unique<comm::Watch>(world_.control, world_.store,
                                         watch_options(here, options.launch));
  launch::refuse_shared_gpu(world_, on_gpu ? launch::gpu_name(here, ranks_.gpu) : "",
                            options.launch);
  const std::filesystem::path logs = std::filesystem::path(run_dir(options)) / "logs";
  if (launch::send_nccl_debug_to((logs / fmt::format("nccl-{}.log", here.rank)).string()))
    make_dirs(logs);
  ranks_.world = launch::carrier(world_, here, options.launch, device);
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
