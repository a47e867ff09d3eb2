// SPDX-License-Identifier: BSD-3-Clause
// Reads the golden files of tests/golden (safetensors), and compares tensors by relative L2
// distance.
#pragma once
#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/from_blob.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <vector>

#include "braid/nn/loss.h"
#include "braid/nn/model.h"

namespace braid::test {

using Golden = std::map<std::string, at::Tensor>;

inline c10::ScalarType golden_dtype(const std::string& word) {
  if (word == "F64") return c10::kDouble;
  if (word == "F32") return c10::kFloat;
  if (word == "I64") return c10::kLong;
  throw std::runtime_error("golden file with dtype " + word);
}

inline Golden read_golden(const std::string& name) {
  const std::string path = std::string(BRAID_SOURCE_DIR) + "/tests/golden/" + name + ".safetensors";
  std::ifstream file(path, std::ios::binary);
  if (!file) throw std::runtime_error("no golden file " + path);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  uint64_t header = 0;
  std::copy_n(bytes.data(), sizeof header, reinterpret_cast<char*>(&header));
  const auto table = nlohmann::json::parse(bytes.substr(8, header));
  Golden golden;
  for (const auto& [key, row] : table.items()) {
    if (key == "__metadata__") continue;
    const auto shape = row["shape"].get<std::vector<int64_t>>();
    char* data = bytes.data() + 8 + header + row["data_offsets"][0].get<size_t>();
    golden[key] = at::from_blob(data, shape, golden_dtype(row["dtype"].get<std::string>())).clone();
  }
  return golden;
}

// ||a - b|| / ||b||, computed in fp64.
inline double distance(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.detach().to(c10::kDouble), y = b.detach().to(c10::kDouble);
  if (x.sizes() != y.sizes()) return 1e300;
  return x.sub(y).norm().item<double>() / y.norm().item<double>();
}

// Gives the model the weights of the file; names and shapes must be the same on both sides.
inline void load_golden(const nn::Model& model, const Golden& golden) {
  const at::NoGradGuard no_grad;
  size_t found = 0;
  for (const Param& param : model.params()) {
    const auto item = golden.find("param." + param.name);
    ASSERT_NE(item, golden.end()) << param.name << " is not in the reference";
    ASSERT_EQ(item->second.sizes(), param.tensor.sizes()) << param.name;
    param.tensor.copy_(item->second);
    ++found;
  }
  for (const auto& item : golden) found -= item.first.starts_with("param.");
  EXPECT_EQ(found, 0u) << "the reference has parameters that the model lacks";
}

// Scores, loss and the gradient of every parameter against those of the reference.
inline void expect_golden_pass(nn::Model& model, const Golden& golden, double tolerance) {
  const at::Tensor output = model.forward(golden.at("input"), {.training = true});
  EXPECT_LT(distance(output, golden.at("logits")), tolerance);
  const at::Tensor loss = nn::loss(nn::Loss::cross_entropy, output, golden.at("target"));
  EXPECT_NEAR(loss.item<double>(), golden.at("loss").item<double>(), tolerance);
  loss.backward();
  for (const Param& param : model.params()) {
    ASSERT_TRUE(param.tensor.grad().defined()) << param.name;
    EXPECT_LT(distance(param.tensor.grad(), golden.at("grad." + param.name)), tolerance)
        << param.name;
  }
}

// bf16 scores and gradients stay near those of the reference; the weights keep single precision.
inline void expect_golden_half_pass(nn::Model& model, const Golden& golden) {
  load_golden(model, golden);
  const at::Tensor output = model.forward(golden.at("input"), {});
  EXPECT_EQ(output.scalar_type(), c10::kBFloat16);
  EXPECT_LT(distance(output, golden.at("logits")), 0.03);
  nn::loss(nn::Loss::cross_entropy, output, golden.at("target")).backward();
  for (const Param& param : model.params()) {
    EXPECT_EQ(param.tensor.scalar_type(), c10::kFloat) << param.name;
    EXPECT_LT(distance(param.tensor.grad(), golden.at("grad." + param.name)), 0.1) << param.name;
  }
}

// The table of layers counts each parameter once.
inline void expect_rows_hold_all_parameters(const nn::Model& model) {
  int64_t rows = 0;
  for (const nn::LayerRow& row : model.layers()) rows += row.parameters;
  EXPECT_EQ(rows, model.parameters());
}

}  // namespace braid::test
