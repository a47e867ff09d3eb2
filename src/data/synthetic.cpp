// SPDX-License-Identifier: BSD-3-Clause
// Samples of any shape without a file, each a function of (data_seed, split, index): for
// benchmarks, plans and tests.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>

#include "braid/core/error.h"
#include "braid/core/rng.h"
#include "data/fields.h"

namespace braid::data {
namespace {

constexpr int64_t synthetic_waves = 6;

// A few plane waves with random directions and phases, on the grid of the last two dims; one
// pattern an outer index, so that the same key on a finer grid gives the same field with more
// points, and `shift` (of the width) moves it.
void fill_waves(const at::Tensor& out, RandomKey key, double shift) {
  const int64_t height = out.size(-2), width = out.size(-1),
                planes = out.numel() / (height * width);
  auto* to = out.mutable_data_ptr<float>();
  std::fill_n(to, out.numel(), 0.0F);
  std::vector<float> cosine(static_cast<size_t>(width)), sine(static_cast<size_t>(width));
  for (int64_t p = 0; p < planes; ++p) {
    for (int64_t m = 0; m < synthetic_waves; ++m) {
      const RandomKey wave = key.with(static_cast<uint64_t>(p * synthetic_waves + m));
      const double kx = static_cast<double>(1 + random_below(wave, 0, 4));
      const double ky = static_cast<double>(random_below(wave, 1, 5)) - 2;
      const double phase = random_uniform(wave, 2) - kx * shift;
      const auto size = static_cast<float>(std::sqrt(2.0 / synthetic_waves));
      const auto angle = [](double turns) { return 2 * std::numbers::pi * turns; };
      for (int64_t x = 0; x < width; ++x) {
        const double a =
            angle(kx * (static_cast<double>(x) + 0.5) / static_cast<double>(width) + phase);
        cosine[x] = size * static_cast<float>(std::cos(a));
        sine[x] = size * static_cast<float>(std::sin(a));
      }
      for (int64_t y = 0; y < height; ++y) {
        const double b = angle(ky * (static_cast<double>(y) + 0.5) / static_cast<double>(height));
        const auto c = static_cast<float>(std::cos(b)), s = static_cast<float>(std::sin(b));
        float* row = to + (p * height + y) * width;
        for (int64_t x = 0; x < width; ++x) row[x] += cosine[x] * c - sine[x] * s;
      }
    }
  }
}

class SyntheticSource final : public Source {
 public:
  SyntheticSource(const DataOptions& options, Split split)
      : size_(options.samples),
        classes_(options.classes),
        smooth_(options.pattern == "smooth"),
        split_(split),
        key_(random_key(static_cast<uint64_t>(options.data_seed), "synthetic")
                 .with(split_name(split))) {
    if (options.input_shape.empty())
      throw ConfigError({.what = "data.input_shape is not set",
                         .why = "synthetic data have the shape that is asked for",
                         .fix = "set data.input_shape, e.g. [20, 360, 720]"});
    if (auto limit = split_limit(options, split)) size_ = std::min(size_, *limit);
    const bool tokens = classes_ > 0 && options.input_shape.size() == 1 &&
                        options.input_shape == options.target_shape;
    spec_.input = {options.input_shape, tokens ? c10::kLong : c10::kFloat};
    spec_.target = {options.target_shape, classes_ > 0 ? c10::kLong : c10::kFloat};
    if (options.target_shape.empty() && classes_ == 0) spec_.target.shape = options.input_shape;
    if (tokens) spec_.tokens = options.input_shape[0];
  }

  int64_t size() const override { return size_; }
  const SampleSpec& spec() const override { return spec_; }

  void read(Access access, const Sample& out) const override {
    const RandomKey key = key_.with(static_cast<uint64_t>(access.index));
    if (spec_.tokens > 0) return fill_tokens(key, out);
    fill_field(out.input, key, 0, "input");
    if (classes_ > 0)
      fill_classes(out.target, key.with("target"));
    else
      fill_field(out.target, key, 1.0 / 32,
                 "target");  // a moved field: there is something to learn
  }

  std::string describe(int64_t index) const override {
    return fmt::format("synthetic {} sample {}", split_name(split_), index);
  }

 private:
  void fill_field(const at::Tensor& out, RandomKey key, double shift, const char* name) const {
    if (smooth_ && out.dim() >= 2)
      fill_waves(out, key, shift);
    else
      fill_normal(out, key.with(name));
  }

  void fill_classes(const at::Tensor& out, RandomKey key) const {
    auto* to = out.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i < out.numel(); ++i)
      to[i] = random_below(key, static_cast<uint64_t>(i), classes_);
  }

  // Tokens i .. i + sequence of one stream: the target is the input one token later.
  void fill_tokens(RandomKey key, const Sample& out) const {
    auto* input = out.input.mutable_data_ptr<int64_t>();
    auto* target = out.target.mutable_data_ptr<int64_t>();
    for (int64_t i = 0; i <= spec_.tokens; ++i) {
      const int64_t token = random_below(key, static_cast<uint64_t>(i), classes_);
      if (i < spec_.tokens) input[i] = token;
      if (i > 0) target[i - 1] = token;
    }
  }

  int64_t size_, classes_;
  bool smooth_;
  Split split_;
  RandomKey key_;
  SampleSpec spec_;
};

}  // namespace

std::shared_ptr<const Source> open_synthetic(const DataOptions& options, Split split) {
  return std::make_shared<SyntheticSource>(options, split);
}

}  // namespace braid::data
