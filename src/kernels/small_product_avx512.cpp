// SPDX-License-Identifier: BSD-3-Clause
#include "kernels/small_product_body.h"

template struct braid::kernels::SmallProduct<braid::kernels::Instructions::avx512>;
