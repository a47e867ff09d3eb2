// SPDX-License-Identifier: BSD-3-Clause
// Optimizer and weights on the host beside a real GPU: what arrives is what was sent, and the
// allocator is asked for the bytes of the dry step.
#include <gtest/gtest.h>

#include <ATen/core/grad_mode.h>

#include "braid/parallel/host.h"
#include "braid/parallel/zero.h"
#include "braid/train/measure.h"
#include "parallel/zero_toy.h"
#include "support/cuda.h"
#include "support/small_runs.h"

namespace braid {
namespace {

using test::Toy;
using test::ToyOptions;

ToyOptions gpu_toy(c10::ScalarType dtype, c10::Device device) {
  ToyOptions options = {.width = 96, .hidden = 160};
  options.type = c10::TensorOptions().dtype(dtype).device(device);
  options.fresh = false;
  return options;
}

// Values made on the host: the same for every copy of the model.
void fill_toy(const Toy& model) {
  const at::NoGradGuard no_grad;
  for (const Param& param : model.params)
    param.tensor.copy_(test::toy_values(param.tensor.sizes(), param.name).mul(0.1));
}

at::Tensor gpu_batch(const ToyOptions& options, int pass) {
  return test::toy_values({4, 6}, "batch" + std::to_string(pass)).to(options.type);
}

TEST_F(OnGpu, GradientsAndWeightsTravelUnchanged) {
  for (const auto dtype : {c10::kDouble, c10::kFloat, c10::kBFloat16})
    for (const int passes : {1, 3}) {
      const ToyOptions options = gpu_toy(dtype, gpu());
      Toy plain(options), model(options);
      fill_toy(plain);
      fill_toy(model);
      parallel::HostParams host(model.params, {.tile = 1000});
      for (int step = 0; step < 3; ++step) {
        for (int pass = 0; pass < passes; ++pass) {
          plain.loss(gpu_batch(options, pass), 4).backward();
          model.loss(gpu_batch(options, pass), 4).backward();
        }
        host.finish();
        const at::NoGradGuard no_grad;
        for (size_t i = 0; i < plain.params.size(); ++i) {
          const Param& master = host.params()[i];
          EXPECT_TRUE(master.tensor.grad().equal(plain.params[i].tensor.grad().cpu()))
              << master.name << " in step " << step;
          master.tensor.detach().sub_(master.tensor.grad().to(master.tensor.scalar_type()), 0.01);
          plain.params[i].tensor.copy_(master.tensor);
        }
        plain.zero_grad();
        host.publish();
        for (size_t i = 0; i < plain.params.size(); ++i)
          EXPECT_TRUE(model.params[i].tensor.equal(plain.params[i].tensor)) << plain.params[i].name;
      }
    }
}

TEST_F(OnGpu, BlocksVisitFromTheHost) {
  const ToyOptions options = gpu_toy(c10::kDouble, gpu());
  Toy plain(options), model(options);
  fill_toy(plain);
  fill_toy(model);
  parallel::Zero zero(model.units(), {}, {}, {.stage = 3, .host = true});
  for (int step = 0; step < 4; ++step) {
    for (int pass = 0; pass < 2; ++pass) {
      zero.hold(pass == 0);
      model.loss(gpu_batch(options, pass), 4, &zero).backward();
      plain.loss(gpu_batch(options, pass), 4).backward();
    }
    zero.finish();
    const at::NoGradGuard no_grad;
    test::toy_sgd(zero.params(), 0.01);
    test::toy_sgd(plain.params, 0.01);
    plain.zero_grad();
    zero.publish();
    const at::Tensor got = model.forward(gpu_batch(options, 7), &zero);
    EXPECT_TRUE(got.allclose(plain.forward(gpu_batch(options, 7)), 1e-9, 1e-12)) << step;
  }
}

TEST_F(OnGpu, ADryStepWithTheHostTakesTheBytesOfARealOne) {
  for (const char* words : {"optimizer", "parameters"}) {
    SCOPED_TRACE(words);
    train::RunOptions run = test::small_run(nn::ModelName::gpt, "bf16");
    run.memory.offload = {words};
    run.train.zero = run.memory.offloads("parameters") ? 3 : 0;
    run.train.param = "bf16";
    run.train.micro_batch = 2;
    const train::Measured dry = train::measure(run, {.device = gpu()});
    train::measure(run, {.device = gpu(), .dry = false});  // torch keeps workspaces of cuBLAS
    const train::Measured real = train::measure(run, {.device = gpu(), .dry = false});
    for (const auto phase : {&train::Measured::backward, &train::Measured::first_step,
                             &train::Measured::second_step}) {
      EXPECT_EQ((dry.*phase).before, (real.*phase).before);
      EXPECT_EQ((dry.*phase).left, (real.*phase).left);
      EXPECT_EQ((dry.*phase).without_scratch.bytes, (real.*phase).without_scratch.bytes);
    }
  }
}

}  // namespace
}  // namespace braid
