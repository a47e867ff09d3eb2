// SPDX-License-Identifier: BSD-3-Clause
// Matrix products of torch (mm, addmm) by the fastest algorithm of cuBLASLt for each shape.
#pragma once

namespace braid::cuda {

// On: 16-bit products on CUDA, wherever they come from, choose (product_choice.h). Off: torch's
// own.
void tune_products(bool on);
bool products_are_tuned();

}  // namespace braid::cuda
