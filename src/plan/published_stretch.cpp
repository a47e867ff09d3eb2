// SPDX-License-Identifier: BSD-3-Clause
#include "plan/published_stretch.h"

#include <algorithm>
#include <array>

namespace braid::plan {
namespace {

constexpr int64_t few_stages = 4;  // a first, a last, and two in the middle
constexpr int64_t few_blocks = 2, more_blocks = 4;

constexpr std::array<double TimeParts::*, 10> all_parts = {
    &TimeParts::forward,       &TimeParts::backward,  &TimeParts::recompute, &TimeParts::optimizer,
    &TimeParts::communication, &TimeParts::copies,    &TimeParts::bubble,    &TimeParts::launch,
    &TimeParts::data,          &TimeParts::checkpoint};

void add_difference(TimeParts& sum, const TimeParts& from, const TimeParts& to, double times) {
  for (double TimeParts::* part : all_parts) sum.*part += times * (to.*part - from.*part);
}

}  // namespace

double total(const TimeParts& parts) {
  double sum = 0;
  for (double TimeParts::* part : all_parts) sum += parts.*part;
  return sum;
}

train::RunOptions resized(const train::RunOptions& options, const Extent& from, const Extent& to) {
  train::RunOptions run = options;
  const int64_t chunks = std::max<int64_t>(1, options.parallel.chunks);
  run.train.global_batch = *options.train.global_batch / from.micros * to.micros;
  run.mesh.pipeline = to.stages;
  run.model.gpt.layers = to.stages * chunks * to.blocks;
  if (to.stages > 1) run.parallel.split.assign(static_cast<size_t>(to.stages * chunks), to.blocks);
  return run;
}

namespace {

TimeParts of_blocks(const Extent& whole, const PartsOf& parts) {
  if (whole.blocks <= more_blocks) return parts(whole);
  Extent small = whole;
  small.blocks = few_blocks;
  const TimeParts few = parts(small);
  small.blocks = more_blocks;
  const TimeParts more = parts(small);
  TimeParts sum = more;
  add_difference(sum, few, more,
                 static_cast<double>(whole.blocks - more_blocks) /
                     static_cast<double>(more_blocks - few_blocks));
  return sum;
}

}  // namespace

TimeParts stretched(const Extent& whole, const PartsOf& parts) {
  const int64_t stages = std::min(whole.stages, few_stages);
  const auto of = [&](int64_t ranks, int64_t micros) {
    return of_blocks({ranks, micros, whole.blocks}, parts);
  };
  // Multiples of the stages, for interleaved schedules, that fill the pipeline.
  const int64_t fewer = 2 * stages, more = 3 * stages;
  if (whole.stages == stages && whole.micros <= more) return of(stages, whole.micros);
  const TimeParts full = of(stages, more);
  TimeParts sum = full;
  add_difference(sum, of(stages, fewer), full,
                 static_cast<double>(whole.micros - more) / static_cast<double>(more - fewer));
  if (whole.stages == stages) return sum;
  const int64_t longer = stages * 3 / 2;  // for which `more` still fills it
  add_difference(sum, full, of(longer, more),
                 static_cast<double>(whole.stages - stages) / static_cast<double>(longer - stages));
  return sum;
}

}  // namespace braid::plan
