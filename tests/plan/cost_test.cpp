// SPDX-License-Identifier: BSD-3-Clause
// Seconds of kernels against numbers worked out by hand.
#include "braid/plan/cost.h"

#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "braid/train/measure.h"
#include "plan/cost_sized.h"
#include "plan/cost_surface.h"
#include "plan/two_nodes.h"
#include "support/expect.h"

namespace braid::test {
namespace {

memory::Operator op_of(const std::string& name, std::vector<memory::TensorShape> in,
                       std::vector<memory::TensorShape> out) {
  memory::Operator op;
  op.name = name;
  op.inputs = std::move(in);
  op.outputs = std::move(out);
  op.flops = memory::flops_of({.name = op.name, .inputs = op.inputs, .outputs = op.outputs});
  for (const auto* list : {&op.inputs, &op.outputs})
    for (const memory::TensorShape& shape : *list) op.bytes += shape.bytes();
  return op;
}

TEST(Cost, StreamingKernelsTakeTheirBytes) {
  const plan::CostModel model(two_nodes());
  const memory::TensorShape big{{1 << 26}, c10::kFloat};  // 256 MiB
  const plan::OpCost cost = model.cost(op_of("aten::add", {big, big}, {big}));
  EXPECT_NEAR(cost.seconds, 2e-6 + 3.0 * (1 << 28) / 0.5e12, 1e-9);
  EXPECT_EQ(cost.bound, plan::Bound::memory);
  EXPECT_EQ(cost.kernels, 1);
  EXPECT_EQ(cost.host, 5e-6);
}

TEST(Cost, ProductsTakeTheirFlopsAndStreamWhenThin) {
  const plan::CostModel model(two_nodes());
  const memory::TensorShape square{{8192, 8192}, c10::kBFloat16};
  const memory::Operator large = op_of("aten::mm", {square, square}, {square});
  const plan::OpCost cost = model.cost(large);
  EXPECT_NEAR(cost.seconds, large.flops / 80e12, 0.02 * cost.seconds);  // 64 of 8192 to start
  EXPECT_EQ(cost.bound, plan::Bound::compute);
  const memory::TensorShape column{{8192, 1}, c10::kBFloat16};
  const plan::OpCost thin = model.cost(op_of("aten::mm", {square, column}, {column}));
  EXPECT_NEAR(thin.seconds, 2e-6 + 2.0 * 8192 * (8192 + 2) / 0.5e12, 1e-7);
  EXPECT_EQ(thin.bound, plan::Bound::memory);
  const plan::CostModel tf32(two_nodes(), {.tf32 = true});
  const memory::TensorShape wide{{8192, 8192}, c10::kFloat};
  const memory::Operator single = op_of("aten::mm", {wide, wide}, {wide});
  EXPECT_NEAR(model.cost(single).seconds / tf32.cost(single).seconds, 5, 0.05);
}

TEST(Cost, ProductsOfEightBitsHaveTheirOwnPeak) {
  plan::Cluster cluster = two_nodes();
  const memory::TensorShape codes{{4096, 4096}, c10::kFloat8_e4m3fn},
      gradients{{4096, 4096}, c10::kFloat8_e5m2}, step{{}, c10::kFloat},
      wide{{4096, 4096}, c10::kBFloat16};
  const memory::Operator narrow = op_of("aten::_scaled_mm", {gradients, codes, step, step}, {wide});
  const std::string text = error_of([&] { (void)plan::CostModel(cluster).cost(narrow); });
  EXPECT_TRUE(contains(text, "gpu.peak.fp8 of G is missing"));
  cluster.gpu.peak["fp8"] = 200e12;
  const auto seconds = [&](const memory::Operator& op) {
    return plan::CostModel(cluster).cost(op).seconds;
  };
  const double by_peak = seconds(narrow), usual = seconds(op_of("aten::mm", {wide, wide}, {wide}));
  EXPECT_NEAR(by_peak / usual, 0.5, 0.01);
  // Where bf16 falls short of its peak by half, so does fp8 of its own, unless it has a curve.
  cluster.gpu.curves = {{"gemm_nn", "bf16", {{{4096, 4096, 4096}, 2 * usual}}}};
  EXPECT_NEAR(seconds(narrow), 2 * by_peak, 0.01 * by_peak);
  cluster.gpu.curves.push_back({"gemm_nn", "fp8", {{{4096, 4096, 4096}, 3 * by_peak}}});
  EXPECT_NEAR(seconds(narrow), 3 * by_peak, 0.01 * by_peak);
}

TEST(Cost, AnActivationOutOfAProductCostsItsBytes) {
  const plan::CostModel model(two_nodes());
  const memory::TensorShape x{{8192, 4096}, c10::kBFloat16}, w{{2048, 4096}, c10::kBFloat16},
      b{{2048}, c10::kBFloat16}, h{{8192, 2048}, c10::kBFloat16};
  const double plain = model.cost(op_of("aten::linear", {x, w, b}, {h})).seconds;
  const plan::OpCost both = model.cost(op_of("braid::linear_gelu", {x, w, b}, {h, h}));
  EXPECT_NEAR(both.seconds, plain + 2.0 * 8192 * 2048 / 0.5e12, 1e-9);
  EXPECT_EQ(both.kernels, 1);
  memory::Operator turned = op_of("braid::linear_gelu", {x, w, b}, {h, h});
  turned.strided = 2;  // the weight is stored [in, out]
  EXPECT_NEAR(model.cost(turned).seconds, both.seconds, 1e-9);
}

TEST(Cost, WavesOfTilesRoundUp) {
  plan::Cluster cluster = two_nodes();
  cluster.gpu.multiprocessors = 100;
  const plan::CostModel model(cluster);
  const auto seconds = [&](int64_t m) {
    return model
        .cost(op_of("aten::mm", {{{m, 4096}, c10::kBFloat16}, {{4096, 1280}, c10::kBFloat16}},
                    {{{m, 1280}, c10::kBFloat16}}))
        .seconds;
  };
  // 10 tiles of 128 wide: 10 rows of them are a wave, one row more is two.
  EXPECT_GT(seconds(1281), 1.2 * seconds(1280));
}

TEST(Cost, ViewsAndEmptyTensorsRunNothing) {
  const plan::CostModel model(two_nodes());
  for (const char* name : {"aten::view", "aten::t", "aten::_unsafe_view", "aten::empty"}) {
    const plan::OpCost cost = model.cost(op_of(name, {{{64, 64}, c10::kFloat}}, {}));
    EXPECT_EQ(cost.seconds, 0) << name;
    EXPECT_EQ(cost.kernels, 0) << name;
    EXPECT_EQ(cost.bound, plan::Bound::none) << name;
    EXPECT_EQ(cost.host, 0.5e-6) << name;
  }
}

TEST(Cost, SmallKernelsAreBoundByTheHostButNotInAGraph) {
  const memory::TensorShape small{{16}, c10::kFloat};
  const memory::Operator op = op_of("aten::add", {small, small}, {small});
  EXPECT_EQ(plan::CostModel(two_nodes()).cost(op).bound, plan::Bound::launch);
  const plan::OpCost graphed = plan::CostModel(two_nodes(), {.graph = true}).cost(op);
  EXPECT_EQ(graphed.host, 1e-6);
  EXPECT_EQ(graphed.bound, plan::Bound::memory);
}

TEST(Cost, UnknownOperatorIsNamed) {
  const plan::CostModel model(two_nodes());
  const std::string text = error_of([&] { (void)model.cost(op_of("aten::fft_fft", {}, {})); });
  EXPECT_TRUE(contains(text, "does not know what aten::fft_fft costs"));
}

TEST(Cost, RowsThatAnIndexNamesAreAllThatIsRead) {
  const plan::CostModel model(two_nodes());
  const memory::TensorShape table{{50000, 1024}, c10::kFloat}, rows{{1000}, c10::kLong},
      out{{1000, 1024}, c10::kFloat};
  EXPECT_NEAR(model.cost(op_of("aten::embedding", {table, rows}, {out})).seconds,
              2e-6 + 2.0 * 1000 * 1024 * 4 / 0.5e12, 1e-9);
  const plan::Sized back =
      plan::sized_of(op_of("aten::embedding_dense_backward", {out, rows}, {table}));
  EXPECT_EQ(back.at[0], 2.0 * (1000 * 1024 * 4 + 1000 * 8));
  EXPECT_EQ(back.beside, 50000.0 * 1024 * 4);
}

TEST(Cost, CausalAttentionTakesHalf) {
  const plan::CostModel model(two_nodes());
  const memory::TensorShape q{{4, 16, 4096, 128}, c10::kBFloat16};
  memory::Operator op = op_of("aten::_scaled_dot_product_flash_attention", {q, q, q}, {q});
  const double whole = model.cost(op).seconds;
  op.causal = true;
  EXPECT_NEAR(model.cost(op).seconds / whole, 0.516, 0.01);
  memory::Operator back =
      op_of("aten::_scaled_dot_product_flash_attention_backward", {q, q, q, q}, {q, q, q});
  EXPECT_NEAR(model.cost(back).seconds / whole, 2.5 / 0.85, 0.05);
}

TEST(Cost, CurvesAreMetAtTheirPointsAndBetweenThem) {
  plan::Cluster cluster = two_nodes();
  cluster.gpu.curves = {{"pointwise", "fp32", {{{3e6}, 1e-5}, {{3e8}, 1e-3}}},
                        {"gemm_nn", "bf16", {{{4096, 4096, 4096}, 4e-3}}}};
  const plan::CostModel model(cluster);
  const auto add = [&](int64_t n) {
    const memory::TensorShape x{{n}, c10::kFloat};
    return model.cost(op_of("aten::add", {x, x}, {x})).seconds;
  };
  EXPECT_NEAR(add(250000), 1e-5, 1e-9);  // 3e6 bytes
  EXPECT_NEAR(add(25000000), 1e-3, 1e-7);
  const double middle = add(2500000);
  EXPECT_GT(middle, 5e-5);
  EXPECT_LT(middle, 2e-4);
  const memory::TensorShape square{{4096, 4096}, c10::kBFloat16};
  EXPECT_NEAR(model.cost(op_of("aten::mm", {square, square}, {square})).seconds, 4e-3, 1e-6);
}

TEST(Cost, CurvesOfTheWrongKindAreRefused) {
  plan::Cluster cluster = two_nodes();
  cluster.gpu.curves = {{"gemm_nn", "bf16", {{{4096, 4096}, 4e-3}}}};
  EXPECT_TRUE(contains(error_of([&] { plan::CostModel model(cluster); }),
                       "the curve gemm_nn has 2 sizes a point, not 3"));
}

// Every operator of every model's step has a class, on a GPU as it would run there.
TEST(Cost, NoOperatorOfAStepIsUnknown) {
  const plan::CostModel model(plan::load_cluster("dgx_a100"));
  struct Row {
    const char* config;
    std::vector<std::string> sets;
  };
  const std::vector<Row> rows = {
      {"gpt.yaml:tiny", {}},
      {"gpt.yaml:tiny", {"model.dropout=0.1"}},
      {"gpt.yaml:tiny", {"memory.recompute=blocks", "train.global_batch=8", "train.micro_batch=4"}},
      {"gpt.yaml:tiny", {"memory.offload=[optimizer]"}},
      {"gpt.yaml:tiny", {"memory.offload=[activations]"}},
      {"llama.yaml:tiny", {}},
      {"swinir.yaml:tiny", {"model.drop_path=0.1"}},
      {"vit.yaml:demo", {}},
      {"mlp.yaml", {}},
      {"moe.yaml:tiny", {}},
      {"moe.yaml:tiny", {"model.moe.router=switch", "model.moe.capacity=1.25"}},
      {"moe.yaml:tiny", {"model.moe.router=expert_choice", "model.moe.capacity=1.0"}},
      {"moe.yaml:tiny", {"model.moe.router=noisy_top_k"}},
  };
  std::set<std::string> unknown;
  for (const Row& row : rows)
    for (const char* precision : {"fp32", "bf16", "fp16"}) {
      std::vector<std::string> sets = row.sets;
      sets.push_back(std::string("train.precision=") + precision);
      const train::RunOptions run =
          train::load_run(std::string(BRAID_SOURCE_DIR "/configs/") + row.config, sets);
      const memory::OperatorLog log = train::log_step(run, {.device = c10::Device(c10::kCUDA, 0)});
      ASSERT_GT(log.operators().size(), 30u) << row.config;
      for (const memory::Operator& op : log.operators()) {
        if (plan::kind_of(op.name))
          EXPECT_TRUE(std::isfinite(model.cost(op).seconds)) << op.name;
        else
          unknown.insert(op.name);
      }
    }
  EXPECT_EQ(unknown, std::set<std::string>());
}

}  // namespace
}  // namespace braid::test
