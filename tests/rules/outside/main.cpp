// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/ops/ones.h>

#include <cstdio>
#include <cstdlib>

#include "braid/nn/options.h"

int main() {
  const auto model = braid::nn::make_mlp({}, {.seed = 1});
  const at::Tensor output = model->forward(at::ones({3, 2}), {});
  if (model->parameters() != 2834 || output.size(1) != 2) return EXIT_FAILURE;
  std::printf("outside: %lld parameters\n", static_cast<long long>(model->parameters()));
}
