// SPDX-License-Identifier: BSD-3-Clause
// Another precision for a model that knows none: weights and inputs in one dtype, or torch's
// autocast around its forward pass.
#pragma once
#include <memory>

#include "braid/core/precision.h"
#include "braid/nn/model.h"

namespace braid::train {

// Casts and moves the weights and buffers where they lie. Throws ConfigError for weights of a dtype
// that the policy does not name. Null: the model computes so already.
std::unique_ptr<nn::Model> cast_model(nn::Model& model, const Precision& policy,
                                      c10::Device device);

}  // namespace braid::train
