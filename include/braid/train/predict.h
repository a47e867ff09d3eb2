// SPDX-License-Identifier: BSD-3-Clause
// What a trained model says of new input: a forecast rolled out in time, a finer picture, a
// continued text.
//
//   // [8, C, H, W] in physical units:
//   at::Tensor days = train::forecast(*model, {.means = m, .stds = s}, now, /*steps=*/8);
#pragma once
#include <ATen/core/Tensor.h>

#include "braid/nn/model.h"
#include "braid/train/options.h"

namespace braid::train {

struct Normalisation {
  at::Tensor means, stds;  // [C, 1, 1]; undefined: data are used as they are
};
Normalisation normalisation_of(const data::DataOptions& options, int64_t channels);

// Each output is the next input. `now` is [C, H, W] in physical units.
at::Tensor forecast(nn::Model& model, const Normalisation& normalisation, const at::Tensor& now,
                    int64_t steps);
// [C, h, w] -> [C, s*h, s*w]; SwinIR normalises by itself.
at::Tensor super_resolve(nn::Model& model, const at::Tensor& coarse);

}  // namespace braid::train
