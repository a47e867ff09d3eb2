// SPDX-License-Identifier: BSD-3-Clause
// Meta kernels of convolutions, plain and transposed, of one to three dimensions.
#include <algorithm>
#include <array>
#include <tuple>

#include <ATen/Parallel.h>
#include <ATen/native/ConvUtils.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include "kernels/meta.h"

namespace braid::kernels {
namespace {

// One number stands for all dimensions.
std::vector<int64_t> by_dimension(c10::SymIntArrayRef symbols, int64_t dimensions) {
  std::vector<int64_t> values = ints(symbols);
  if (values.size() == 1) values.resize(dimensions, values[0]);
  return values;
}

bool channels_last(at::MemoryFormat format) {
  return format == at::MemoryFormat::ChannelsLast || format == at::MemoryFormat::ChannelsLast3d;
}

// All backends compute channels-last as soon as one of the two is, except cuDNN in fp64.
at::MemoryFormat conv_format(const at::Tensor& input, const at::Tensor& weight) {
  if (dry_on(c10::kCUDA) && input.scalar_type() == c10::kDouble)
    return at::MemoryFormat::Contiguous;
  for (const at::Tensor& tensor : {input, weight})
    if (channels_last(tensor.suggest_memory_format())) return tensor.suggest_memory_format();
  return at::MemoryFormat::Contiguous;
}

struct ConvShape {
  std::vector<int64_t> stride, padding, dilation;
  bool transposed = false;
  int64_t groups = 1;

  bool all(const std::vector<int64_t>& values, int64_t wanted) const {
    return std::all_of(values.begin(), values.end(), [=](int64_t v) { return v == wanted; });
  }
};

// LibTorch's own rule for fp32: oneDNN unless the work is too small for it.
bool runs_in_onednn(const at::Tensor& input, const at::Tensor& weight, const ConvShape& shape) {
  if (input.scalar_type() != c10::kFloat) return input.scalar_type() != c10::kDouble;
  const bool point = weight.numel() == weight.size(0) * weight.size(1);
  const bool plain = shape.all(shape.stride, 1) && shape.all(shape.dilation, 1);
  const bool alone = plain && point && input.size(0) < 16 && at::get_num_threads() == 1;
  const bool wide = weight.size(-1) > 3 && weight.dim() > 3 && weight.size(-2) > 3;
  return !alone && (shape.groups > 1 || wide || input.size(0) > 1 || input.numel() > 20480);
}

// Without oneDNN the CPU writes the window around each position out as a column.
void take_columns(const at::Tensor& input, const at::Tensor& weight, const at::Tensor& output,
                  const ConvShape& shape) {
  if (!dry_on(c10::kCPU) || shape.groups != 1 || weight.dim() > 4) return;
  if (runs_in_onednn(input, weight, shape)) return;
  const bool point = weight.numel() == weight.size(0) * weight.size(1);
  const bool dilated = !shape.all(shape.dilation, 1);
  const bool direct = point && shape.all(shape.stride, 1) && shape.all(shape.padding, 0);
  if (direct && !shape.transposed && !dilated) return;
  const at::Tensor& places = shape.transposed ? input : output;
  const int64_t samples = shape.transposed || dilated ? 1 : places.size(0);
  const int64_t columns = places.numel() / (places.size(0) * places.size(1));
  scratch(samples * weight.numel() / weight.size(0) * columns *
              static_cast<int64_t>(input.element_size()),
          input);
}

at::Tensor meta_convolution(const at::Tensor& input, const at::Tensor& weight,
                            const std::optional<at::Tensor>&, c10::SymIntArrayRef stride,
                            c10::SymIntArrayRef padding, c10::SymIntArrayRef dilation,
                            bool transposed, c10::SymIntArrayRef output_padding,
                            c10::SymInt groups) {
  const int64_t dims = weight.dim() - 2;
  const ConvShape shape = {by_dimension(stride, dims), by_dimension(padding, dims),
                           by_dimension(dilation, dims), transposed, groups.expect_int()};
  const std::vector<int64_t> more = by_dimension(output_padding, dims);
  const bool one = input.dim() == dims + 1;  // a sample without a batch
  const at::Tensor batch = one ? input.unsqueeze(0) : input;
  const std::vector<int64_t> sizes =
      transposed ? at::native::conv_input_size(batch.sizes(), weight.sizes(), shape.padding, more,
                                               shape.stride, shape.dilation, shape.groups)
                 : at::native::conv_output_size(batch.sizes(), weight.sizes(), shape.padding,
                                                shape.stride, shape.dilation);
  const at::Tensor result =
      at::empty(sizes, input.options().memory_format(conv_format(batch, weight)));
  take_columns(batch, weight, result, shape);
  return one ? result.squeeze(0) : result;
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> meta_convolution_backward(
    const at::Tensor& grad, const at::Tensor& input, const at::Tensor& weight,
    at::OptionalSymIntArrayRef, c10::SymIntArrayRef stride, c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation, bool transposed, c10::SymIntArrayRef, c10::SymInt groups,
    std::array<bool, 3> wanted) {
  const at::MemoryFormat format = conv_format(input, weight);
  at::Tensor grad_input, grad_weight, grad_bias;
  if (wanted[0]) grad_input = at::empty_like(input, format);
  if (wanted[1]) grad_weight = at::empty_like(weight, format);
  if (wanted[2]) grad_bias = fresh({grad.size(1)}, grad);
  const int64_t dims = weight.dim() - 2;
  take_columns(input, weight, grad,
               {by_dimension(stride, dims), by_dimension(padding, dims),
                by_dimension(dilation, dims), transposed, groups.expect_int()});
  return {grad_input, grad_weight, grad_bias};
}

TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("convolution", &meta_convolution);
  library.impl("convolution_backward", &meta_convolution_backward);
}

}  // namespace
}  // namespace braid::kernels
