// SPDX-License-Identifier: BSD-3-Clause
// Meta kernels of fused optimizer updates and of the loss scaler: they change tensors in place.
#include <optional>

#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

void meta_adam(at::TensorList, at::TensorList, at::TensorList, at::TensorList, at::TensorList,
               at::TensorList, double, double, double, double, double, bool, bool, MaybeTensor,
               MaybeTensor) {}

void meta_adam_tensor_lr(at::TensorList, at::TensorList, at::TensorList, at::TensorList,
                         at::TensorList, at::TensorList, const at::Tensor&, double, double, double,
                         double, bool, bool, MaybeTensor, MaybeTensor) {}

void meta_sgd(at::TensorList, at::TensorList, at::TensorList, double, double, double, double, bool,
              bool, bool, MaybeTensor, MaybeTensor) {}

void meta_sgd_tensor_lr(at::TensorList, at::TensorList, at::TensorList, double, double,
                        const at::Tensor&, double, bool, bool, bool, MaybeTensor, MaybeTensor) {}

void meta_adagrad(at::TensorList, at::TensorList, at::TensorList, at::TensorList, double, double,
                  double, double, bool, MaybeTensor, MaybeTensor) {}

void meta_unscale(at::TensorList, at::Tensor&, const at::Tensor&) {}

// In place: the fallback would wrap the number in a tensor for each.
void meta_add_to_all(at::TensorList, const at::Scalar&) {}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("_fused_adam_", &meta_adam);
  library.impl("_fused_adam_.tensor_lr", &meta_adam_tensor_lr);
  library.impl("_fused_adamw_", &meta_adam);
  library.impl("_fused_adamw_.tensor_lr", &meta_adam_tensor_lr);
  library.impl("_fused_sgd_", &meta_sgd);
  library.impl("_fused_sgd_.tensor_lr", &meta_sgd_tensor_lr);
  library.impl("_fused_adagrad_", &meta_adagrad);
  library.impl("_amp_foreach_non_finite_check_and_unscale_", &meta_unscale);
  library.impl("_foreach_add_.Scalar", &meta_add_to_all);
}

}  // namespace
}  // namespace braid::kernels
