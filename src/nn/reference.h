// SPDX-License-Identifier: BSD-3-Clause
// What model.kernels: reference goes with.
//
//   check_reference("swinir", build);   // ConfigError for a layout that the original does not have
#pragma once
#include <string>

#include "braid/nn/model.h"

namespace braid::nn {

void check_reference(const std::string& model, const Build& build);

}  // namespace braid::nn
