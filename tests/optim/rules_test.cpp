// SPDX-License-Identifier: BSD-3-Clause
// Ten steps of each rule against torch.optim (tests/golden/make_optim.py).
#include <gtest/gtest.h>

#include <ATen/ops/empty.h>
#include <ATen/ops/tensor.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <vector>

#include "braid/optim/optimizer.h"

namespace braid::optim {
namespace {

std::vector<double> grid(int64_t count, int64_t factor, int64_t offset, int64_t prime,
                         double divisor) {
  std::vector<double> values;
  for (int64_t i = 0; i < count; ++i)
    values.push_back(static_cast<double>((factor * i + offset) % prime - prime / 2) / divisor);
  return values;
}

at::Tensor grid_like(const at::Tensor& like, int64_t factor, int64_t offset, int64_t prime,
                     double divisor) {
  return at::tensor(grid(like.numel(), factor, offset, prime, divisor), at::kDouble)
      .to(like.scalar_type())
      .view(like.sizes());
}

std::vector<Param> start_params(c10::ScalarType dtype) {
  std::vector<Param> params = {{"weight", at::empty({3, 4}, at::TensorOptions(dtype))},
                               {"bias", at::empty({5}, at::TensorOptions(dtype))}};
  for (Param& param : params) {
    param.tensor = grid_like(param.tensor, 5, 0, 11, 4);
    param.tensor.set_requires_grad(true);
  }
  return params;
}

void give_grads(std::vector<Param>& params, int step) {
  for (Param& param : params) {
    const bool none = param.name == "bias" && step == 3;
    param.tensor.mutable_grad() =
        none ? at::Tensor() : grid_like(param.tensor.detach(), 7, 13 * step, 17, 8);
  }
}

std::map<std::string, OptimizerOptions> cases() {
  return {
      {"sgd", {.name = Algorithm::sgd}},
      {"sgd_decay", {.name = Algorithm::sgd, .weight_decay = 0.1}},
      {"sgd_momentum", {.name = Algorithm::sgd, .weight_decay = 0.1, .momentum = 0.9}},
      {"sgd_nesterov",
       {.name = Algorithm::sgd, .weight_decay = 0.1, .momentum = 0.9, .nesterov = true}},
      {"adam", {.name = Algorithm::adam, .betas = {0.9, 0.95}}},
      {"adam_decay", {.name = Algorithm::adam, .weight_decay = 0.1}},
      {"adamw", {.name = Algorithm::adamw, .weight_decay = 0.1}},
  };
}

struct GoldenLine {
  std::string rule, dtype, param;
  std::vector<double> values;
};

std::vector<GoldenLine> golden_lines() {
  std::ifstream file(BRAID_SOURCE_DIR "/tests/golden/optim.txt");
  std::vector<GoldenLine> lines;
  for (std::string text; std::getline(file, text);) {
    std::istringstream words(text);
    GoldenLine line;
    words >> line.rule >> line.dtype >> line.param;
    for (std::string word; words >> word;)
      line.values.push_back(std::strtod(word.c_str(), nullptr));
    lines.push_back(line);
  }
  return lines;
}

void expect_near(const at::Tensor& tensor, const GoldenLine& line, double tolerance) {
  const at::Tensor got = tensor.detach().to(at::kDouble).contiguous();
  ASSERT_EQ(got.numel(), static_cast<int64_t>(line.values.size()));
  for (size_t i = 0; i < line.values.size(); ++i) {
    const double want = line.values[i];
    EXPECT_NEAR(got.const_data_ptr<double>()[i], want, tolerance * std::max(1.0, std::abs(want)))
        << line.rule << " " << line.dtype << " " << line.param << "[" << i << "]";
  }
}

TEST(OptimizerRules, EqualTorchAfterTenSteps) {
  std::map<std::string, std::vector<Param>> runs;
  for (const auto& [name, options] : cases()) {
    for (const auto& [word, dtype] :
         {std::pair("fp64", c10::kDouble), std::pair("fp32", c10::kFloat)}) {
      std::vector<Param> params = start_params(dtype);
      Optimizer optimizer(params, options, dtype);
      for (int step = 0; step < 10; ++step) {
        give_grads(params, step);
        optimizer.step(0.05 / (1 + step / 4.0));
      }
      runs[name + " " + word] = params;
    }
  }
  const auto lines = golden_lines();
  ASSERT_EQ(lines.size(), 2 * 2 * cases().size());
  for (const GoldenLine& line : lines)
    for (const Param& param : runs.at(line.rule + " " + line.dtype))
      if (param.name == line.param)
        expect_near(param.tensor, line, line.dtype == "fp64" ? 1e-12 : 1e-6);
}

// Stops after five steps, moves weights and state to a new optimizer and goes on: the same bits.
TEST(OptimizerRules, ResumeBitExactly) {
  for (const auto& [name, options] : cases()) {
    std::vector<Param> whole = start_params(c10::kBFloat16);
    std::vector<Param> split = start_params(c10::kBFloat16);
    Optimizer unbroken(whole, options);
    auto broken = std::make_unique<Optimizer>(split, options);
    for (int step = 0; step < 10; ++step) {
      if (step == 5) {
        const State state = broken->state();
        std::vector<Param> fresh = start_params(c10::kBFloat16);
        for (size_t i = 0; i < fresh.size(); ++i)
          fresh[i].tensor.detach().copy_(split[i].tensor.detach());
        broken = std::make_unique<Optimizer>(fresh, options);
        broken->load(state);
        split = fresh;
      }
      give_grads(whole, step);
      give_grads(split, step);
      unbroken.step(0.05);
      broken->step(0.05);
    }
    for (size_t i = 0; i < whole.size(); ++i)
      EXPECT_TRUE(whole[i].tensor.equal(split[i].tensor)) << name << " " << whole[i].name;
    for (const auto& [entry, tensor] : unbroken.state().tensors)
      EXPECT_TRUE(tensor.equal(broken->state().tensor(entry))) << name << " " << entry;
  }
}

}  // namespace
}  // namespace braid::optim
