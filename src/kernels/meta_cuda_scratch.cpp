// SPDX-License-Identifier: BSD-3-Clause
// Reductions and gradients that torch has Meta kernels for, with the scratch that their kernels
// take.
#include <algorithm>

#include <ATen/TensorIterator.h>
#include <ATen/native/ReduceOpsUtils.h>
#include <ATen/ops/_softmax_backward_data_meta_dispatch.h>
#include <ATen/ops/linalg_vector_norm_meta_dispatch.h>
#include <ATen/ops/nll_loss_backward_meta_dispatch.h>
#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

// Of Hopper (H100, H200 with SXM).
constexpr int64_t multiprocessors = 132, threads_of_multiprocessor = 2048;
constexpr int64_t warp = 32, most_threads = 512;

int64_t up(int64_t value, int64_t by) { return (value + by - 1) / by; }

int64_t last_power_of_2(int64_t value) {
  int64_t power = 1;
  while (power * 2 <= value) power *= 2;
  return power;
}

// A reduction whose outputs are too few for the device is split over thread blocks, which meet in
// global memory. This follows the launch configuration of ATen's reduction kernel.
class ReductionLaunch {
 public:
  explicit ReductionLaunch(const at::TensorIterator& iterator)
      : outputs_(iterator.num_output_elements()),
        inputs_(iterator.numel() / std::max<int64_t>(outputs_, 1)) {
    look_at_strides(iterator);
    set_block();
    split();
  }

  int64_t scratch_bytes(int64_t element) const {
    if (blocks_of_output_ <= 1) return 0;
    int64_t bytes = element * outputs_ * blocks_of_output_;
    if (!along_input_) bytes *= width_ * output_vector_;
    return bytes;
  }
  int64_t semaphore_bytes() const { return blocks_of_output_ <= 1 ? 0 : 4 * grid(); }

 private:
  void look_at_strides(const at::TensorIterator& iterator) {
    const int reduced = iterator.num_reduce_dims(), input = iterator.ntensors() - 1;
    const auto strides = iterator.strides(input);
    const int64_t element = iterator.element_size(input);
    along_input_ = reduced == iterator.ndim() || strides[0] < strides[reduced];
    across_ = along_input_ ? inputs_ : outputs_;
    down_ = along_input_ ? outputs_ : inputs_;
    if ((along_input_ ? strides[0] : strides[reduced]) != element) return;
    if (along_input_ && across_ >= 4 && reduced == 1) {
      across_ /= 4;
    } else if (!along_input_) {
      output_vector_ = output_vector(iterator, reduced, input);
      across_ /= output_vector_;
    }
  }

  // Outputs that a thread computes side by side: as many as all strides allow, at most 4.
  static int64_t output_vector(const at::TensorIterator& iterator, int reduced, int input) {
    int64_t width = 4;
    const auto fit = [&](int64_t value) {
      while (value % width != 0) width /= 2;
    };
    fit(iterator.shape()[reduced]);
    const auto strides = iterator.strides(input);
    for (int dim = 0; dim < iterator.ndim(); ++dim)
      if (dim != reduced) fit(strides[dim] / iterator.element_size(input));
    return width;
  }

  void set_block() {
    const int64_t most = most_threads / output_vector_;
    const int64_t wide = across_ < most ? last_power_of_2(across_) : most;
    const int64_t high = down_ < most ? last_power_of_2(down_) : most;
    width_ = std::min(wide, warp);
    height_ = std::min(high, most / width_);
    width_ = std::min(wide, most / height_);
  }

  int64_t grid() const { return up(outputs_ / output_vector_, output_step_); }
  int64_t values() const { return up(inputs_, input_step_); }  // of a thread

  void split() {
    (along_input_ ? input_step_ : output_step_) *= width_;
    const bool over_warps = values() >= std::min<int64_t>(height_ * 16, 256);
    (over_warps ? input_step_ : output_step_) *= height_;
    const int64_t target = multiprocessors * (threads_of_multiprocessor / (width_ * height_));
    if (!over_warps || values() < 256 || grid() > target) return;
    blocks_of_output_ = std::max(std::min(up(target, grid()), up(values(), 16)), up(values(), 256));
  }

  int64_t outputs_, inputs_;  // inputs of one output
  int64_t across_ = 1, down_ = 1, width_ = 1, height_ = 1;
  int64_t output_vector_ = 1, input_step_ = 1, output_step_ = 1, blocks_of_output_ = 1;
  bool along_input_ = true;  // neighbouring threads read neighbours of one reduction
};

}  // namespace

void take_cuda_reduction(const at::Tensor& result, const at::Tensor& self,
                         at::OptionalIntArrayRef dims, bool keep) {
  if (!dry_on(c10::kCUDA) || self.numel() == 0 || self.dim() == 0) return;
  Scratch buffers(self);
  at::Tensor input = self;
  if (!self.is_floating_point()) input = self.to(result.scalar_type());  // the kernel casts first
  const auto mask = at::native::make_dim_mask(dims, self.dim());
  at::Tensor viewed =
      at::native::review_reduce_result(result, static_cast<int>(self.dim()), mask, keep);
  const at::TensorIterator iterator = at::TensorIterator::reduce_op(viewed, input);
  if (!iterator.can_use_32bit_indexing()) return;  // done in parts of unknown sizes
  const ReductionLaunch launch(iterator);
  const auto wide = accumulate_dtype(result.scalar_type());
  const auto summed = result.is_floating_point() ? wide : result.scalar_type();
  buffers.take(launch.scratch_bytes(static_cast<int64_t>(c10::elementSize(summed))));
  buffers.take(launch.semaphore_bytes());
}

namespace {

at::Tensor meta_vector_norm(const at::Tensor& self, const at::Scalar& order,
                            at::OptionalIntArrayRef dims, bool keep,
                            std::optional<c10::ScalarType> dtype) {
  const at::Tensor result = at::meta::linalg_vector_norm(self, order, dims, keep, dtype);
  take_cuda_reduction(result, self, dims, keep);
  return result;
}

at::Tensor meta_softmax_backward(const at::Tensor& grad, const at::Tensor& output, int64_t dim,
                                 c10::ScalarType dtype) {
  const at::Tensor result = at::meta::_softmax_backward_data(grad, output, dim, dtype);
  if (dry_on(c10::kCUDA)) scratch(bytes_of(grad), grad);  // grad * output
  return result;
}

at::Tensor meta_nll_loss_backward(const at::Tensor& grad, const at::Tensor& self,
                                  const at::Tensor& target, MaybeTensor weight, int64_t reduction,
                                  c10::SymInt ignored, const at::Tensor& total) {
  const at::Tensor result = at::meta::nll_loss_backward_symint(
      grad, self, target, weight, reduction, std::move(ignored), total);
  if (dry_on(c10::kCUDA) && !grad.is_contiguous()) scratch(bytes_of(grad), grad);
  return result;
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("linalg_vector_norm", &meta_vector_norm);
  library.impl("_softmax_backward_data", &meta_softmax_backward);
  library.impl("nll_loss_backward", &meta_nll_loss_backward);
}

}  // namespace
}  // namespace braid::kernels
