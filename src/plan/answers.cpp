// SPDX-License-Identifier: BSD-3-Clause
// How large a micro-batch, a sequence or an image may be.
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>

#include "braid/core/error.h"
#include "plan/search_evaluate.h"

namespace braid::plan {
namespace {

using nn::ModelName;

// Sizes of which all below one that fits do so, too.
class Sizes {
 public:
  using Options = std::function<train::RunOptions(int64_t size)>;
  Sizes(const Request& request, const Base& base, Options options)
      : request_(request), evaluator_(request, base), options_(std::move(options)) {}

  bool fits(int64_t size) { return plan(size).fits; }
  const Plan& plan(int64_t size) {
    const auto known = plans_.find(size);
    if (known != plans_.end()) return known->second;
    return plans_.emplace(size, evaluator_.memory(options_(size), request_.gpus)).first->second;
  }
  // Of low + 1 ... high, where `low` fits (or is nothing) and `high` does not: the last that fits.
  int64_t last_between(int64_t low, int64_t high) {
    while (high - low > 1) {
      const int64_t middle = low + (high - low) / 2;
      (fits(middle) ? low : high) = middle;
    }
    return low;
  }
  // The last one that fits, by doubling; 0: none.
  int64_t last(int64_t most) {
    int64_t low = 0, high = 1;
    while (high <= most && fits(high)) {
      low = high;
      high = high == most ? most + 1 : std::min(2 * high, most);
    }
    return high > most ? low : last_between(low, high);
  }

 private:
  const Request& request_;
  Evaluator evaluator_;
  Options options_;
  std::map<int64_t, Plan> plans_;
};

std::string room_text(const Plan& plan, const Base& base) {
  return fmt::format("{} of {}", size_text(plan.peak_bytes), size_text(base.room));
}

// What grows with a sample, and in which steps.
struct Grows {
  const char* what;
  int64_t unit = 1;
  int64_t most = 1;  // steps
  std::function<void(train::RunOptions&, int64_t size)> set;
};

Grows tokens_of(const Choice& choice) {
  const int64_t unit = 64 * choice.mesh.tensor * choice.mesh.context;
  return {"tokens", unit, (int64_t{1} << 26) / unit, [](train::RunOptions& options, int64_t size) {
            options.model.gpt.sequence = options.model.llama.sequence = size;
            options.data.sequence = size;
          }};
}

// Both edges in the proportion that they have, whole patches or windows each.
Grows edges_of(const train::RunOptions& options, const Choice& choice) {
  const bool vit = options.model.name == ModelName::vit;
  const std::vector<int64_t>& image = vit ? options.model.vit.image : options.model.swinir.image;
  const int64_t piece =
      (vit ? options.model.vit.patch : options.model.swinir.window) * choice.mesh.context;
  const int64_t both = std::gcd(image[0], image[1]);
  const int64_t tall = image[0] / both, wide = image[1] / both;
  return {"rows", piece * tall, (int64_t{1} << 16) / (piece * std::max(tall, wide)),
          [=](train::RunOptions& changed, int64_t size) {
            const std::vector<int64_t> edges = {size, size / tall * wide};
            (vit ? changed.model.vit.image : changed.model.swinir.image) = edges;
          }};
}

Grows grows_with(const train::RunOptions& options, const Choice& choice) {
  switch (options.model.name) {
    case ModelName::gpt:
    case ModelName::llama:
      return tokens_of(choice);
    case ModelName::vit:
    case ModelName::swinir:
      return edges_of(options, choice);
    case ModelName::mlp:
    case ModelName::own:
      break;
  }
  throw ConfigError({.what = "the longest sample of an mlp",
                     .why = "its samples are points: they have neither tokens nor rows",
                     .fix = "ask for the largest micro-batch"});
}

}  // namespace

Answer largest_micro_batch(const Request& request, const Choice& choice) {
  const Base base = base_of(request);
  const int64_t ranks =
      choice.mesh.data.value_or(1) * choice.mesh.shard.value_or(1) * choice.mesh.expert;
  const int64_t rows = base.batch / ranks;
  Sizes sizes(request, base, [&](int64_t size) {
    Choice tried = choice;
    tried.micro_batch = size;
    return apply(base.options, tried);
  });
  // A whole batch at once has no gradients beside it: it may fit where less does not.
  Answer answer;
  if (rows > 0 && sizes.fits(rows)) {
    answer.value = rows;
  } else if (rows > 1) {
    const int64_t half = rows / 2;
    answer.value = sizes.fits(half) ? sizes.last_between(half, rows) : sizes.last_between(0, half);
  }
  answer.plan = sizes.plan(std::max<int64_t>(answer.value, 1));
  if (answer.value == 0)
    answer.text = "not even one sample fits: " + miss_text(answer.plan, base.room);
  else if (answer.value == rows)
    answer.text =
        fmt::format("all {} samples of a rank at once: {}", rows, room_text(answer.plan, base));
  else
    answer.text = fmt::format("{} of {} samples of a rank at once: {}; {} would take {}",
                              answer.value, rows, room_text(answer.plan, base), answer.value + 1,
                              size_text(sizes.plan(answer.value + 1).peak_bytes));
  return answer;
}

Answer largest_sequence(const Request& request, const Choice& choice) {
  const Base base = base_of(request);
  const Grows grows = grows_with(base.options, choice);
  Sizes sizes(request, base, [&](int64_t steps) {
    train::RunOptions options = apply(base.options, choice);
    grows.set(options, steps * grows.unit);
    return options;
  });
  const int64_t steps = sizes.last(std::max<int64_t>(grows.most, 1));
  Answer answer;
  answer.value = steps * grows.unit;
  answer.plan = sizes.plan(std::max<int64_t>(steps, 1));
  answer.text = steps == 0 ? fmt::format("not even {} {} fit: {}", grows.unit, grows.what,
                                         miss_text(answer.plan, base.room))
                           : fmt::format("{} {} (in steps of {}): {}", answer.value, grows.what,
                                         grows.unit, room_text(answer.plan, base));
  return answer;
}

}  // namespace braid::plan
