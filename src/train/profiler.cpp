// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/profiler.h"

#include <fmt/format.h>
#include <time.h>

#include <future>
#include <optional>
#include <utility>

#include "braid/comm/texts.h"
#include "braid/core/accelerator.h"
#include "braid/core/fs.h"
#include "braid/core/region.h"
#include "braid/core/thread.h"
#include "braid/memory/instruments.h"
#include "braid/report/trace.h"
#include "braid/train/memory_files.h"
#include "train/profiler_clock.h"
#include "train/profiler_costs.h"
#include "train/profiler_kineto.h"
#include "train/profiler_request.h"

namespace braid::train {
namespace {

// On a CPU the time that this thread works: other programs, the loader and other ranks do not
// count.
double seconds_of_step(c10::Device device) {
  timespec now = {};
  clock_gettime(device.is_cpu() ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

}  // namespace

enum class ProfilePhase : uint8_t { wait, warm_up, trace, overhead, over };

// The steps of one profile.
struct ProfileCycle {
  int64_t first = -1;  // step; -1: the next one
  int64_t wait = 0, warm_up = 0, steps = 0, overhead = 0;
  std::filesystem::path dir;

  int64_t traced_from() const { return first + wait + warm_up; }
  int64_t traced_to() const { return traced_from() + steps; }
  int64_t end() const { return traced_to() + 2 * overhead; }
  ProfilePhase phase(int64_t step) const {
    if (step < first + wait) return ProfilePhase::wait;
    if (step < traced_from()) return ProfilePhase::warm_up;
    if (step < traced_to()) return ProfilePhase::trace;
    return step < end() ? ProfilePhase::overhead : ProfilePhase::over;
  }
};

struct Profiler::State {
  State(ProfileOptions given, ProfilerPlace where)
      : options(std::move(given)),
        place(std::move(where)),
        requests(place.run_dir, place.control.rank() == 0) {
    if (options.on) plan_next();
  }
  ~State() {
    step_region.reset();
    instruments.reset();  // before the tracer: the last one to begin is the first to end
  }

  std::filesystem::path usual_dir() const {
    return options.dir.empty() ? place.run_dir / "profile" : std::filesystem::path(options.dir);
  }
  memory::Ledger& ledger() { return place.ledger != nullptr ? *place.ledger : own_ledger; }
  void say(const std::string& line) const {
    if (place.say) place.say(line);
  }

  void plan_next() {
    cycle = ProfileCycle{.wait = options.wait,
                         .warm_up = options.warm_up,
                         .steps = options.steps,
                         .overhead = options.overhead};
  }
  void begin(int64_t step);
  void begin_trace();
  void watch(bool with_log);
  bool end();
  void end_trace(int64_t last);
  void publish();
  void gather(const std::string& mine);
  void wait_for_device() const {
    if (place.device.is_cuda()) accelerator()->synchronize(place.device.index());
  }

  ProfileOptions options;
  ProfilerPlace place;
  ProfileRequests requests;
  std::optional<ProfileCycle> cycle;
  int64_t now = -1;  // the step that is under way
  int64_t last_traced = -1;

  std::optional<Kineto> kineto;
  memory::Ledger own_ledger;
  memory::OperatorLog log;
  std::optional<memory::Instruments> instruments;
  std::optional<Region> step_region;
  double step_began = 0;  // seconds
  report::InstrumentCost cost;
  int64_t offset = 0;     // of the clock
  std::string mine, all;  // profile of this rank, not told yet; of all, on rank 0
  std::filesystem::path dir;
  std::future<int> merging;
};

void Profiler::State::watch(bool with_log) {
  instruments.emplace(memory::InstrumentOptions{
      .ledger = &ledger(), .log = with_log ? &log : nullptr, .annotate = true, .adopt = true});
}

void Profiler::State::begin(int64_t step) {
  now = step;
  if (cycle->first < 0) cycle->first = step;
  const ProfilePhase phase = cycle->phase(step);
  const bool traced_next = step + 1 == cycle->traced_from();
  if (phase == ProfilePhase::warm_up) {
    if (!kineto) kineto.emplace(place.device, /*with_memory=*/place.control.rank() == 0);
    if (traced_next) watch(/*with_log=*/true);
  }
  if (phase == ProfilePhase::trace) begin_trace();
  if (phase != ProfilePhase::overhead) return;
  wait_for_device();
  step_began = seconds_of_step(place.device);
  if ((step - cycle->traced_to()) % 2 == 1) watch(/*with_log=*/false);
}

void Profiler::State::begin_trace() {
  const bool first = now == cycle->traced_from();
  if (first) {
    if (!kineto) kineto.emplace(place.device, /*with_memory=*/place.control.rank() == 0);
    dir = cycle->dir.empty() ? usual_dir() : cycle->dir / fmt::format("step{}", now);
    make_dirs(dir);
    offset = clock_offset(place.control);
    kineto->start();
  }
  watch(/*with_log=*/first && cycle->warm_up == 0);
  if (first && place.mark_alive) place.mark_alive();
  if (first) ledger().begin();
  step_region.emplace(fmt::format("ProfilerStep#{}", now));
}

bool Profiler::State::end() {
  const int64_t step = std::exchange(now, -1);
  const ProfilePhase phase = cycle->phase(step);
  const bool watched = instruments.has_value();
  step_region.reset();
  instruments.reset();
  if (phase == ProfilePhase::overhead) {
    wait_for_device();
    (watched ? cost.on : cost.off).push_back(seconds_of_step(place.device) - step_began);
    if (place.ledger == nullptr) own_ledger.begin();  // its history ends here
  }
  if (phase == ProfilePhase::trace) last_traced = step;
  const bool traced = step + 1 == cycle->traced_to();
  if (traced) end_trace(step);
  if (step + 1 == cycle->end()) publish();
  return traced;
}

void Profiler::State::end_trace(int64_t last) {
  const auto rank = place.control.rank();
  const std::filesystem::path file = dir / fmt::format("rank{}_trace.json", rank);
  kineto->stop(file);
  kineto.reset();
  MemoryFilesOptions files{.rank = rank,
                           .during = fmt::format("steps {} to {}", cycle->traced_from(), last)};
  if (place.device.is_cuda()) files.reserved = accelerator()->peak_reserved(place.device.index());
  write_memory_files(ledger(), memory::place_of(place.device), dir, files);
  report::RankProfile profile = costs_of(log);
  profile.file = file;
  profile.rank = rank;
  profile.pipelined = place.pipelined;
  mine = report::rank_profile(profile);
  log.clear();
  if (place.ledger == nullptr) own_ledger.begin();
}

void Profiler::State::publish() {
  gather(std::exchange(mine, {}));
  cost = {};
  cycle.reset();
  if (options.on && options.repeat) {
    plan_next();
    cycle->dir = usual_dir();
  }
}

// The summary at once; the merged trace, which may be large, beside the steps that follow.
void Profiler::State::gather(const std::string& mine) {
  const std::vector<std::string> offsets =
      comm::exchange_texts(place.control, std::to_string(offset));
  const std::vector<std::string> texts = comm::exchange_texts(place.control, mine);
  if (place.control.rank() != 0) return;
  all = report::profile_summary(texts, cost);
  write_atomic(dir / "summary.json", all);
  std::vector<report::TracePart> parts;
  for (int rank = 0; rank < place.control.size(); ++rank)
    parts.push_back({dir / fmt::format("rank{}_trace.json", rank), rank,
                     std::stoll(offsets[static_cast<size_t>(rank)])});
  if (merging.valid()) merging.get();
  merging = start_async("merge traces",
                        [parts, dir = dir] { return merge_traces(parts, dir / "trace.json"); });
  say(fmt::format("profile of {} steps: {}", cycle->steps, dir.string()));
}

Profiler::Profiler(ProfileOptions options, ProfilerPlace place)
    : state_(std::make_unique<State>(std::move(options), std::move(place))) {}
Profiler::~Profiler() = default;
Profiler::Profiler(Profiler&&) noexcept = default;
Profiler& Profiler::operator=(Profiler&&) noexcept = default;

void Profiler::begin_step(int64_t step) {
  if (state_->cycle && state_->now != step) state_->begin(step);
}

bool Profiler::end_step() { return state_->cycle && state_->now >= 0 && state_->end(); }

void Profiler::finish() {
  State& state = *state_;
  if (state.kineto && state.kineto->started()) state.end_trace(state.last_traced);
  if (!state.mine.empty()) state.publish();
  state.cycle.reset();
  state.kineto.reset();
  if (!state.merging.valid()) return;
  const int lost = state.merging.get();
  if (lost > 0)
    state.say(fmt::format("{} traces lie on other hosts and are not in trace.json", lost));
}

int64_t Profiler::wish() { return state_->requests.take(state_->options.steps); }

void Profiler::request(int64_t steps) {
  State& state = *state_;
  if (steps <= 0) return;
  if (state.cycle) return state.say("a profile is under way already");
  state.cycle = ProfileCycle{.warm_up = 1, .steps = steps, .dir = state.usual_dir()};
}

bool Profiler::measures() const { return state_->instruments.has_value(); }
bool Profiler::done() const { return !state_->cycle.has_value(); }
std::string Profiler::summary() const { return state_->all; }
std::filesystem::path Profiler::dir() const { return state_->dir; }

}  // namespace braid::train
