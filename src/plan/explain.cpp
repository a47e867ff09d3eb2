// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/explain.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

#include "braid/core/error.h"
#include "plan/explain_rungs.h"
#include "plan/search_evaluate.h"

namespace braid::plan {
namespace {

constexpr double good_scaling = 0.75, much = 0.2;

class Guide {
 public:
  explicit Guide(const Request& request)
      : request_(request), base_(base_of(request)), evaluator_(request, base_) {}

  std::vector<Advice> advise() {
    for (const Rung& rung : rungs_of(request_, base_))
      if (climb(rung)) {
        tell_speed();
        return std::move(advice_);
      }
    Advice last{.question = "What else would help?", .answer = "Nothing here fits."};
    if (nearest_)
      last.answer = fmt::format("Nothing here fits: {} takes {}; {}.", to_text(nearest_->choice),
                                miss_text(*nearest_, base_.room),
                                help_text(request_, base_, *nearest_, evaluator_));
    advice_.push_back(std::move(last));
    return std::move(advice_);
  }

 private:
  Plan memory(const Choice& choice) {
    return evaluator_.memory(apply(base_.options, choice), request_.gpus);
  }

  // Whether any of its tries fits; the fastest of the first that does is taken.
  bool climb(const Rung& rung) {
    Advice step{.question = rung.question, .answer = {}};
    std::optional<Plan> least;
    std::vector<Choice> fitting;
    for (const Choice& choice : rung.tries) {
      Plan plan = memory(choice);
      plan.choice = choice;
      if (plan.fits) fitting.push_back(choice);
      if (!least || plan.peak_bytes < least->peak_bytes) least = std::move(plan);
      if (!fitting.empty() && fitting.size() >= 2) break;
    }
    if (!least) {
      step.answer = "No: " + rung.cannot + ".";
    } else if (fitting.empty()) {
      step.answer = fmt::format("No: {}.", miss_text(*least, base_.room));
      if (!nearest_ || least->peak_bytes < nearest_->peak_bytes) nearest_ = least;
    } else {
      take(fitting, step);
    }
    advice_.push_back(std::move(step));
    return !fitting.empty();
  }

  // Larger micro-batches are tried while they fit, unless the config says how large they are.
  void take(const std::vector<Choice>& fitting, Advice& step) {
    for (const Choice& choice : fitting) {
      consider(evaluator_.plan(choice));
      if (base_.options.train.micro_batch) continue;
      const int64_t rows = base_.batch / (choice.mesh.data.value_or(1) *
                                          choice.mesh.shard.value_or(1) * choice.mesh.expert);
      Choice larger = choice;
      for (const int64_t size : divisors(rows)) {
        if (size <= choice.micro_batch) continue;
        larger.micro_batch = size;
        if (!memory(larger).fits || !consider(evaluator_.plan(larger))) break;
      }
    }
    step.taken = true;
    step.sets = sets_of(taken_->choice);
    step.answer = fmt::format("Yes: {}, {} of {}.", to_text(taken_->choice),
                              size_text(taken_->peak_bytes), size_text(base_.room));
  }

  // Whether it is the fastest so far.
  bool consider(Plan plan) {
    if (!plan.fits) return false;
    if (taken_ && plan.time.samples_per_second <= taken_->time.samples_per_second) return false;
    taken_ = std::move(plan);
    return true;
  }

  void tell_speed() {
    const StepTime& time = taken_->time;
    const auto share = [&](double part) { return time.seconds > 0 ? part / time.seconds : 0; };
    const TimeParts& p = time.parts;
    std::vector<std::string> waits;
    const auto wait = [&](const char* what, double part) {
      if (share(part) >= 0.005)
        waits.push_back(fmt::format("{:.0f} % {}", 100 * share(part), what));
    };
    wait("computing", p.forward + p.backward + p.optimizer);
    wait("computing again", p.recompute);
    wait("exposed communication", p.communication);
    wait("waiting for other stages", p.bubble);
    wait("waiting for the host to start kernels", p.launch);
    wait("copies to and from the host", p.copies);
    wait("waiting for samples", p.data);
    advice_.push_back(
        {.question = "How fast is that?",
         .answer = fmt::format("{:.4g} samples/s, {} a step: {}.", time.samples_per_second,
                               to_text(Seconds{time.seconds}), fmt::join(waits, ", "))});
    tell_scaling();
    if (share(p.launch) > much)
      advice_.push_back({.question = "What does the GPU wait for?",
                         .answer = "For the host, which cannot start kernels fast enough: a larger "
                                   "micro-batch or global batch makes each of them longer."});
    if (share(p.communication) > much)
      advice_.push_back(
          {.question = "Is there too much communication?",
           .answer = "Yes: more samples a GPU and step (a larger global batch, or fewer GPUs) "
                     "spread it over more computing; pieces within a node (mesh.shard) keep it off "
                     "the network."});
    tell_precision();
  }

  // One GPU with its share of the batch is what all of them could do.
  void tell_scaling() {
    if (request_.gpus == 1 || taken_->choice.zero > 0 || base_.batch % request_.gpus != 0) return;
    if (taken_->choice.mesh.data.value_or(1) != request_.gpus) return;
    train::RunOptions alone = taken_->options;
    alone.mesh.data = alone.mesh.shard = 1;
    alone.train.global_batch = base_.batch / request_.gpus;
    const double one = evaluator_.plan(alone, 1).time.samples_per_second;
    const double share =
        taken_->time.samples_per_second / (one * static_cast<double>(request_.gpus));
    advice_.push_back({.question = "Does plain data parallelism scale?",
                       .answer = fmt::format("{}: {} GPUs do {:.0f} % of {} times the work of one.",
                                             share >= good_scaling ? "Yes" : "No", request_.gpus,
                                             100 * share, request_.gpus)});
  }

  void tell_precision() {
    const Precision policy = policy_of(base_.options.train);
    if (policy.compute != c10::kFloat || !request_.cluster.gpu.peak.contains("bf16")) return;
    Choice half = taken_->choice;
    half.precision = "bf16";
    const Plan plan = evaluator_.plan(half);
    const double times = plan.time.samples_per_second / taken_->time.samples_per_second;
    if (times < 1.05) return;
    advice_.push_back(
        {.question = "Would 16 bits be faster?",
         .answer = fmt::format("Yes, {:.2g} times as fast, with {} instead of {}; the "
                               "numbers change a little.",
                               times, size_text(plan.peak_bytes), size_text(taken_->peak_bytes)),
         .sets = {"--set train.precision=bf16"}});
  }

  const Request& request_;
  const Base base_;
  Evaluator evaluator_;
  std::vector<Advice> advice_;
  std::optional<Plan> taken_, nearest_;
};

}  // namespace

std::vector<Advice> explain(const Request& request) { return Guide(request).advise(); }

std::string to_text(const std::vector<Advice>& advice) {
  std::string text;
  for (size_t i = 0; i < advice.size(); ++i) {
    const Advice& step = advice[i];
    text += fmt::format("{}. {}\n   {}\n", i + 1, step.question, step.answer);
    if (!step.sets.empty())
      text += fmt::format("   {}: {}\n", step.taken ? "take" : "try", fmt::join(step.sets, " "));
  }
  return text;
}

}  // namespace braid::plan
