// SPDX-License-Identifier: BSD-3-Clause
// A list of parts with dropout, skip connections and three things to carry, as one process runs it
// and as stages.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>

#include <memory>
#include <string>
#include <vector>

#include "braid/core/blocks.h"
#include "braid/core/param.h"
#include "braid/core/rng.h"
#include "braid/kernels/deferred.h"
#include "braid/kernels/dropout.h"
#include "braid/parallel/pipeline.h"
#include "support/drawn.h"

namespace braid::test {

struct PartsOptions {
  int64_t parts = 9;
  int64_t width = 6;
  int64_t micro = 3;  // samples of a micro-batch; the last one has one less
  int micros = 4;
  double dropout = 0.25;
};

// Which parts a stage has: the first stages have one more, the last one has two more.
inline std::vector<Range> uneven_stages(int64_t parts, int stages) {
  std::vector<Range> ranges;
  int64_t begin = 0;
  for (int s = 0; s < stages; ++s) {
    const int64_t left = parts - begin, after = stages - s - 1;
    const int64_t take = after == 0 ? left : std::max<int64_t>(1, (left - 2) / (after + 1));
    ranges.push_back({begin, begin + std::min(take, left - after)});
    begin = ranges.back().end;
  }
  return ranges;
}

class Parts {
 public:
  explicit Parts(PartsOptions given, std::shared_ptr<kernels::Deferred> deferred = {})
      : options(given), later(std::move(deferred)) {
    const int64_t w = options.width;
    for (int64_t i = 0; i < options.parts; ++i) {
      const std::string name = "parts." + std::to_string(i);
      add(name + ".up", {2 * w, w});
      add(name + ".shift", {2 * w});
      add(name + ".down", {w, 2 * w});
      add(name + ".gain", {w});
    }
  }

  at::Tensor find(int64_t part, const char* name) const {
    for (const Param& param : params)
      if (param.name == "parts." + std::to_string(part) + "." + name) return param.tensor;
    return {};
  }
  // Of some parts.
  std::vector<Param> params_of(const Range& range) const {
    return {params.begin() + range.begin * 4, params.begin() + range.end * 4};
  }

  int64_t samples(int micro) const {
    return options.micro - (micro + 1 == options.micros && options.micros > 1 ? 1 : 0);
  }
  int64_t all_samples() const {
    return (options.micros - 1) * options.micro + samples(options.micros - 1);
  }
  Carry input(int micro) const {  // samples of the batch, two things about them, their numbers
    const int64_t first = micro * options.micro, count = samples(micro);
    return {drawn({all_samples(), options.width}, 5, "x").narrow(0, first, count),
            drawn({all_samples(), 2}, 5, "side").narrow(0, first, count),
            at::arange(first, first + count)};
  }

  Carry part(int64_t i, const Carry& carry, int micro) const {
    const at::Tensor x = carry[0].mul(find(i, "gain").add(1));
    const at::Tensor inner = kernels::linear(x, find(i, "up"), find(i, "shift"), later).tanh();
    const RandomKey key = random_key(3, "parts." + std::to_string(i));
    const at::Tensor kept = kernels::dropout(
        inner, {.rate = options.dropout, .key = key, .first_sample = micro * options.micro});
    const at::Tensor y = kernels::linear(kept, find(i, "down"), {}, later);
    const at::Tensor even = carry[2].remainder(2).to(at::kDouble).unsqueeze(1);
    return {carry[0].add(y), carry[1].mul(0.5).add(y.narrow(1, 0, 2).mul(even)), carry[2]};
  }

  Carry run(const Range& range, const Carry& carry, int micro) const {
    Carry now = range.begin == 0 ? input(micro) : carry;
    for (int64_t i = range.begin; i < range.end; ++i) now = part(i, now, micro);
    return now;
  }

  // Its part of the mean over the batch.
  at::Tensor loss(const Carry& out) const {
    return out[0].square().sum().add(out[1].sin().sum()).div(static_cast<double>(all_samples()));
  }

  std::vector<CarrySpec> carried(int micro) const {
    return {{{samples(micro), options.width}, at::kDouble},
            {{samples(micro), 2}, at::kDouble},
            {{samples(micro)}, at::kLong}};
  }

  // One process, the same micro-batches one after the other. Gives the losses.
  std::vector<double> alone() const {
    std::vector<double> losses;
    for (int micro = 0; micro < options.micros; ++micro) {
      const at::Tensor value = loss(run({0, options.parts}, {}, micro));
      losses.push_back(value.item<double>());
      value.backward();
    }
    return losses;
  }

  parallel::PipelineWork work(std::vector<Range> stages, std::vector<double>* losses) const {
    return {.forward =
                [this, stages](int stage, const Carry& carry, int micro) {
                  return run(stages[static_cast<size_t>(stage)], carry, micro);
                },
            .loss =
                [this, losses](const Carry& out, int) {
                  const at::Tensor value = loss(out);
                  if (losses != nullptr) losses->push_back(value.item<double>());
                  return value;
                },
            .carried = [this](int, int micro) { return carried(micro); }};
  }

  PartsOptions options;
  std::shared_ptr<kernels::Deferred> later;
  std::vector<Param> params;

 private:
  void add(const std::string& name, std::vector<int64_t> sizes) {
    params.push_back({name, drawn(sizes, 7, name).mul_(0.4).requires_grad_()});
  }
};

inline std::shared_ptr<kernels::Deferred> deferred_for(const parallel::Schedule& schedule) {
  return schedule.splits_backward() ? std::make_shared<kernels::Deferred>() : nullptr;
}

}  // namespace braid::test
