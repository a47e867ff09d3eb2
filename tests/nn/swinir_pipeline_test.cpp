// SPDX-License-Identifier: BSD-3-Clause
// SwinIR in a real pipeline of three ranks: what skips the groups in between (the shallow features,
// the input) travels with them.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "braid/parallel/pipeline.h"
#include "nn/swinir_layouts.h"
#include "support/ranks.h"

namespace braid::nn {
namespace {

// Micro-batches of one sample each.
Pass pass_of(int micro) {
  Pass pass = test::swin_pass();
  pass.first_sample += micro;
  return pass;
}

void expect_pipeline(const test::SwinWhole& whole, parallel::ScheduleKind kind) {
  constexpr int ranks = 3, micros = 3;
  test::on_ranks(ranks, [&](const comm::Group& world) {
    const Layout layout = {.stages = {{world.rank(), world.rank() + 1}},
                           .later = std::make_shared<kernels::Deferred>()};
    const auto model = make_swinir(whole.options, test::swin_build(layout));
    parallel::Pipeline pipeline(
        parallel::make_schedule({.kind = kind, .ranks = ranks, .micros = micros}), world,
        layout.later);
    pipeline.run(
        {.forward =
             [&](int stage, const Carry& carry, int micro) {
               const Carry in = stage == 0 ? Carry{whole.input.narrow(0, micro, 1)} : carry;
               return model->stage({stage, stage + 1}, in, pass_of(micro));
             },
         .loss =
             [&](const Carry& output, int micro) {
               return loss(whole.kind, output[0], whole.target.narrow(0, micro, 1)).div(micros);
             },
         .carried = [&](int, int) { return model->carried(whole.input.narrow(0, 0, 1)); }});
    test::expect_swin_params(*model, layout, whole);
  });
}

TEST(SwinirPipeline, HasTheGradientsOfOneProcess) {
  for (const Upsampler upsampler : {Upsampler::pixelshuffle, Upsampler::none}) {
    SwinirOptions options = test::swin_of(upsampler);
    options.depths = {2, 1, 2};
    options.heads = {6, 3, 6};
    const test::SwinWhole whole(options);
    for (const auto kind : {parallel::ScheduleKind::one_f_one_b, parallel::ScheduleKind::zb_h1})
      expect_pipeline(whole, kind);
  }
}

}  // namespace
}  // namespace braid::nn
