// SPDX-License-Identifier: BSD-3-Clause
// Where the first NaN or infinity of a forward pass comes from.
#pragma once
#include <string>
#include <vector>

#include "braid/data/loader.h"
#include "braid/nn/model.h"
#include "braid/train/evaluate.h"

namespace braid::train {

const char* bad_value(double loss);  // nan, inf or -inf: the sign of a NaN says nothing

// "parameter blocks.3.mlp.fc1.weight", "the input batch", "the output of aten::addmm after
// blocks.3.mlp.fc1.weight", or "" if all of the forward pass is finite. Runs the pass again and
// reads every result: slow, for the moment after a failure.
std::string first_not_finite(nn::Model& model, const std::vector<Param>& params,
                             const data::Batch& batch, const Forward& forward);

}  // namespace braid::train
