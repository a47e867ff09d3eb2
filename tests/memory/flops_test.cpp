// SPDX-License-Identifier: BSD-3-Clause
// Every FLOP formula against numbers worked out by hand, with all lengths different so that no two
// can be mistaken for each other.
#include "braid/memory/operator_log.h"

#include <gtest/gtest.h>

namespace braid::memory {
namespace {

using Shapes = std::vector<std::vector<int64_t>>;

struct FlopsCase {
  const char* name;
  Shapes inputs, outputs;
  double flops;
  std::vector<bool> wanted = {};
  bool transposed = false;
};

std::vector<TensorShape> shapes(const Shapes& sizes) {
  std::vector<TensorShape> result;
  for (const auto& each : sizes) result.push_back({each, c10::kFloat});
  return result;
}

double counted(const FlopsCase& c) {
  const auto inputs = shapes(c.inputs), outputs = shapes(c.outputs);
  return flops_of({.name = c.name,
                   .inputs = inputs,
                   .outputs = outputs,
                   .wanted = c.wanted,
                   .transposed = c.transposed});
}

void expect_flops(const std::vector<FlopsCase>& cases) {
  for (const FlopsCase& c : cases) EXPECT_EQ(counted(c), c.flops) << c.name;
}

TEST(Flops, MatrixProducts) {
  expect_flops({
      {"aten::mm", {{3, 5}, {5, 7}}, {{3, 7}}, 210},          // 2 * 3 * 5 * 7
      {"aten::mm", {{3, 5}, {5, 7}, {3, 7}}, {{3, 7}}, 210},  // into an `out`
      {"aten::addmm", {{7}, {3, 5}, {5, 7}}, {{3, 7}}, 210},  // bias is free
      {"aten::addmm_", {{3, 7}, {3, 5}, {5, 7}}, {{3, 7}}, 210},
      {"aten::_addmm_activation", {{7}, {3, 5}, {5, 7}}, {{3, 7}}, 210},
      {"aten::bmm", {{2, 3, 5}, {2, 5, 7}}, {{2, 3, 7}}, 420},
      {"aten::baddbmm", {{2, 3, 7}, {2, 3, 5}, {2, 5, 7}}, {{2, 3, 7}}, 420},
      {"aten::addbmm", {{3, 7}, {2, 3, 5}, {2, 5, 7}}, {{3, 7}}, 420},
      {"aten::mv", {{3, 5}, {5}}, {{3}}, 30},
      {"aten::addmv", {{3}, {3, 5}, {5}}, {{3}}, 30},
      {"aten::dot", {{11}, {11}}, {{}}, 22},
      {"aten::_scaled_mm", {{16, 32}, {32, 48}, {}, {}}, {{16, 48}}, 49152},  // 2 * 16 * 32 * 48
      {"aten::matmul", {{2, 3, 5}, {5, 7}}, {{2, 3, 7}}, 420},
      {"aten::matmul", {{5}, {2, 5, 7}}, {{2, 7}}, 140},
      {"aten::linear", {{2, 3, 5}, {7, 5}, {7}}, {{2, 3, 7}}, 420},
      {"braid::linear_gelu", {{3, 5}, {7, 5}, {7}}, {{3, 7}, {3, 7}}, 210},
      {"aten::mm", {{0, 5}, {5, 7}}, {{0, 7}}, 0},
  });
}

TEST(Flops, GroupedProducts) {
  expect_flops({
      {"aten::_grouped_mm", {{2, 3, 5}, {2, 5, 7}}, {{2, 3, 7}}, 420},
      {"aten::_grouped_mm", {{11, 5}, {2, 5, 7}, {2}}, {{11, 7}}, 770},  // 2 * 11 * 5 * 7
      {"aten::_grouped_mm", {{2, 3, 5}, {5, 11}, {2}}, {{3, 11}}, 330},  // 2 * 3 * 5 * 11
      {"aten::_grouped_mm", {{3, 11}, {11, 7}, {2}}, {{2, 3, 7}}, 462},  // 2 * 3 * 11 * 7
      {"aten::_scaled_grouped_mm", {{11, 5}, {2, 5, 7}, {}, {}, {2}}, {{11, 7}}, 770},
  });
}

TEST(Flops, Convolutions) {
  // 3 x 3 window over 4 channels for each of 2 * 6 * 5 * 5 outputs: 2 * 300 * 36.
  const Shapes image = {{2, 4, 7, 7}, {6, 4, 3, 3}, {6}};
  expect_flops({
      {"aten::convolution", image, {{2, 6, 5, 5}}, 21600},
      // stride 2: 2 * (2 * 6 * 3 * 3) * 36
      {"aten::convolution", image, {{2, 6, 3, 3}}, 7776},
      // dilation 2 changes the output alone: 2 * (2 * 6 * 3 * 3) * 36
      {"aten::convolution", {{2, 4, 7, 7}, {6, 4, 3, 3}}, {{2, 6, 3, 3}}, 7776},
      // 2 groups: half the channels for each output, 2 * 300 * 18
      {"aten::convolution", {{2, 4, 7, 7}, {6, 2, 3, 3}}, {{2, 6, 5, 5}}, 10800},
      // one dimension: 2 * (2 * 6 * 8) * (4 * 3)
      {"aten::convolution", {{2, 4, 10}, {6, 4, 3}}, {{2, 6, 8}}, 2304},
  });
}

TEST(Flops, TransposedConvolutions) {
  // Each of 2 * 4 * 5 * 5 inputs gives 6 * 3 * 3 products: 2 * 200 * 54. With 2 groups half.
  expect_flops({
      {"aten::convolution", {{2, 4, 5, 5}, {4, 6, 3, 3}}, {{2, 6, 7, 7}}, 21600, {}, true},
      {"aten::convolution", {{2, 4, 5, 5}, {4, 3, 3, 3}}, {{2, 6, 7, 7}}, 10800, {}, true},
  });
}

TEST(Flops, GradientsOfConvolutionsThatAreWanted) {
  const Shapes inputs = {{2, 6, 5, 5}, {2, 4, 7, 7}, {6, 4, 3, 3}};  // gradient, input, weight
  const char* name = "aten::convolution_backward";
  const Shapes outputs = {{2, 4, 7, 7}, {6, 4, 3, 3}, {6}};
  expect_flops({
      {name, inputs, outputs, 43200, {true, true, true}},
      {name, inputs, outputs, 21600, {true, false, true}},
      {name, inputs, outputs, 21600, {false, true, false}},
      {name, inputs, outputs, 0, {false, false, true}},
      {name, {{2, 6, 7, 7}, {2, 4, 5, 5}, {4, 6, 3, 3}}, {}, 43200, {true, true, false}, true},
  });
}

TEST(Flops, Attention) {
  // B 2, H 3, N 5, M 7, D 4: scores 2 * (2 * 3 * 5 * 7) * 4, their product with v the same.
  const Shapes same = {{2, 3, 5, 4}, {2, 3, 7, 4}, {2, 3, 7, 4}};
  const Shapes shared = {{2, 3, 5, 4}, {2, 1, 7, 4}, {2, 1, 7, 4}};  // one head of k and v
  const Shapes wide = {{2, 3, 5, 4}, {2, 3, 7, 4}, {2, 3, 7, 6}};    // 2 * 210 * (4 + 6)
  for (const char* name :
       {"aten::_scaled_dot_product_flash_attention", "aten::_scaled_dot_product_cudnn_attention",
        "aten::_scaled_dot_product_efficient_attention", "aten::scaled_dot_product_attention",
        "braid::attention", "aten::_scaled_dot_product_flash_attention_for_cpu"})
    expect_flops({{name, same, {{2, 3, 5, 4}}, 3360},
                  {name, shared, {{2, 3, 5, 4}}, 3360},
                  {name, wide, {{2, 3, 5, 6}}, 4200}});
}

TEST(Flops, GradientsOfAttentionCountTwice) {
  const Shapes inputs = {{2, 3, 5, 6}, {2, 3, 5, 4}, {2, 1, 7, 4}, {2, 1, 7, 6}};
  for (const char* name :
       {"aten::_scaled_dot_product_flash_attention_backward",
        "aten::_scaled_dot_product_cudnn_attention_backward", "braid::attention_grad",
        "aten::_scaled_dot_product_efficient_attention_backward",
        "aten::_scaled_dot_product_flash_attention_for_cpu_backward"})
    expect_flops({{name, inputs, {}, 8400}});
}

TEST(Flops, TheRestIsFree) {
  expect_flops({{"aten::mul", {{3, 5}, {3, 5}}, {{3, 5}}, 0},
                {"aten::native_layer_norm", {{3, 5}, {5}, {5}}, {{3, 5}}, 0},
                {"aten::_softmax", {{3, 5}}, {{3, 5}}, 0},
                {"braid::mm", {{3, 5}, {5, 7}}, {{3, 7}}, 0}});
}

TEST(Flops, LogAddsUp) {
  OperatorLog log;
  Operator product, sum;
  product.flops = 210;
  product.bytes = 100;
  sum.bytes = 24;
  log.add(product);
  log.add(sum);
  EXPECT_EQ(log.flops(), 210);
  EXPECT_EQ(log.bytes(), 124);
  log.clear();
  EXPECT_EQ(log.flops(), 0);
}

TEST(Flops, BytesOfAShape) {
  EXPECT_EQ((TensorShape{{3, 5}, c10::kBFloat16}.bytes()), 30);
  EXPECT_EQ((TensorShape{{}, c10::kDouble}.bytes()), 8);
  EXPECT_EQ((TensorShape{{4, 0}, c10::kFloat}.bytes()), 0);
}

}  // namespace
}  // namespace braid::memory
