// SPDX-License-Identifier: BSD-3-Clause
// Forward and backward pass of every operator on dry CUDA tensors against the GPU: the same results
// and the same peak of the ledger. Scratch that no Meta kernel knows is printed, operator by
// operator.
#include <iostream>
#include <map>

#include "braid/kernels/attention.h"
#include "braid/kernels/parts.h"
#include "braid/memory/instruments.h"
#include "support/cuda.h"
#include "support/op_cases_heavy.h"

namespace braid {
namespace {

struct MeasuredOnGpu {
  std::vector<std::string> found;
  int64_t without_scratch = 0;
  std::map<std::string, memory::Scratch> scratch;
};

MeasuredOnGpu measured_on_gpu(const test::OpCase& op, bool dry) {
  memory::Ledger ledger;
  const memory::Instruments on({.ledger = &ledger, .dry = dry});
  test::Tensors inputs = test::inputs_of(op, c10::Device(c10::kCUDA, 0));
  ledger.begin();
  MeasuredOnGpu result;
  result.found = test::described(test::forward_backward(op, inputs));
  result.without_scratch = ledger.peak_without_scratch(memory::cuda(0)).bytes;
  result.scratch = ledger.scratch(memory::cuda(0));
  return result;
}

test::OpRun by_head(at::Tensor (*attend)(const at::Tensor&, const at::Tensor&, const at::Tensor&)) {
  return [=](test::Tensors& x) {
    return test::Tensors{attend(x[0].transpose(1, 2), x[1].transpose(1, 2), x[2].transpose(1, 2))};
  };
}

std::vector<test::OpCase> gpu_attention_cases() {
  std::vector<test::OpCase> cases;
  const auto same = [](c10::ScalarType dtype, int64_t tokens, int64_t width) {
    return std::vector<test::OpInput>(3, {{2, tokens, 4, width}, dtype});
  };
  const auto flash = by_head([](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return std::get<0>(at::_scaled_dot_product_flash_attention(q, k, v, 0.0, true));
  });
  const auto cudnn = by_head([](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return kernels::attention(q, k, v, {.causal = true});
  });
  const auto efficient = by_head([](const at::Tensor& q, const at::Tensor& k, const at::Tensor& v) {
    return std::get<0>(at::_scaled_dot_product_efficient_attention(q, k, v, {}, true, 0.0, true));
  });
  std::vector<test::OpInput> shared = same(test::b16, 256, 64);
  for (size_t i = 1; i < 3; ++i) shared[i].sizes[2] = 2;
  test::add_cases(cases, "flash_cuda", flash,
                  {same(test::b16, 200, 64), same(test::b16, 256, 40), shared});
  test::add_cases(cases, "cudnn", cudnn,
                  {same(test::b16, 200, 64), same(test::b16, 256, 64), shared});
  const auto of_one = [](test::Tensors& x) {
    test::Tensors qkv = kernels::parts(x[0], 3);
    for (at::Tensor& part : qkv) part = part.unflatten(2, {-1, 64}).transpose(1, 2);
    return test::Tensors{kernels::attention(qkv[0], qkv[1], qkv[2])};
  };
  test::add_cases(cases, "cudnn of one", of_one, {{{{2, 200, 3 * 256}, test::b16}}});
  test::add_cases(cases, "efficient", efficient,
                  {same(test::f32, 200, 64), same(test::f32, 256, 32), same(test::b16, 200, 64)});
  test::add_cases(
      cases, "rms_norm",
      [](test::Tensors& x) { return test::Tensors{at::rms_norm(x[0], {64}, x[1], 1e-5)}; },
      {{{{8, 100, 64}}, {{64}}}, {{{8, 100, 64}, test::b16}, {{64}, test::b16}}});
  return cases;
}

// What runs on the GPU of the tables for the CPU: all but the attention kernels of the CPU, and
// torch's own dropout, which braid does not use and whose two CUDA kernels differ in what they
// keep.
std::vector<test::OpCase> gpu_op_cases() {
  std::vector<test::OpCase> cases = gpu_attention_cases();
  for (test::OpCase& op : test::all_op_cases())
    if (!op.name.starts_with("flash_attention") && !op.name.starts_with("native_dropout"))
      cases.push_back(std::move(op));
  return cases;
}

// False, and said so, where the GPU has no kernel for these dtypes.
bool runs_on_gpu(const test::OpCase& op) {
  try {
    measured_on_gpu(op, false);  // also makes workspaces and plans that are kept
    return true;
  } catch (const c10::Error& error) {
    std::cout << op.name << ": not on CUDA: " << error.what_without_backtrace() << "\n";
    return false;
  }
}

void print_scratch(const std::string& name, const MeasuredOnGpu& real, const MeasuredOnGpu& dry) {
  for (const auto& [op, taken] : real.scratch) {
    const auto known = dry.scratch.find(op);
    const int64_t bytes = known == dry.scratch.end() ? 0 : known->second.bytes;
    if (bytes != taken.bytes)
      std::cout << name << ": " << op << " takes " << taken.bytes << " bytes of scratch in "
                << taken.calls << " pieces, its Meta kernel " << bytes << "\n";
  }
}

TEST_F(OnGpu, DryOperatorsTakeWhatRealOnesTake) {
  for (const test::OpCase& op : gpu_op_cases()) {
    SCOPED_TRACE(op.name);
    if (!runs_on_gpu(op)) continue;
    const MeasuredOnGpu real = measured_on_gpu(op, false), dry = measured_on_gpu(op, true);
    EXPECT_EQ(dry.found, real.found);
    EXPECT_EQ(dry.without_scratch, real.without_scratch);
    print_scratch(op.name, real, dry);
  }
}

}  // namespace
}  // namespace braid
