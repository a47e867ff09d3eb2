// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/dropout.h"

#include <ATen/Parallel.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include "braid/core/mix.h"

namespace braid::kernels {
namespace {

at::Tensor keep_mask_cpu(const at::Tensor& like, double rate, int64_t key, int64_t first) {
  at::Tensor mask = at::empty(like.sizes(), like.options().dtype(c10::kBool));
  bool* out = static_cast<bool*>(mask.mutable_data_ptr());
  const uint64_t limit = mix_threshold(rate);
  at::parallel_for(0, mask.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = mix_keeps(static_cast<uint64_t>(key), static_cast<uint64_t>(first + i), limit);
  });
  return mask;
}

// x ^ (x >> bits) with a logical shift; int64 shifts copy the sign.
void xor_shift_(at::Tensor& x, int64_t bits) {
  x.bitwise_xor_(x.bitwise_right_shift(bits).bitwise_and_((int64_t{1} << (64 - bits)) - 1));
}

// mix_keeps in tensor operations on int64 (which wrap in the same way), for devices without a
// kernel of their own.
at::Tensor keep_mask_by_ops(const at::Tensor& like, double rate, int64_t key, int64_t first) {
  at::Tensor x = at::arange(first + 1, first + 1 + like.numel(), like.options().dtype(c10::kLong));
  x.mul_(static_cast<int64_t>(mix_golden)).add_(key);
  xor_shift_(x, 30);
  x.mul_(static_cast<int64_t>(mix_first));
  xor_shift_(x, 27);
  x.mul_(static_cast<int64_t>(mix_second));
  xor_shift_(x, 31);
  x.bitwise_right_shift_(64 - mix_word_bits).bitwise_and_((int64_t{1} << mix_word_bits) - 1);
  return x.ge(static_cast<int64_t>(mix_threshold(rate))).view(like.sizes());
}

at::Tensor keep_mask_meta(const at::Tensor& like, double, int64_t, int64_t) {
  return at::empty(like.sizes(), like.options().dtype(c10::kBool));
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def("keep_mask(Tensor like, float rate, int key, int first) -> Tensor");
  library.def("keep_mask_by_ops(Tensor like, float rate, int key, int first) -> Tensor");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) { library.impl("keep_mask", &keep_mask_cpu); }
TORCH_LIBRARY_IMPL(braid, Meta, library) { library.impl("keep_mask", &keep_mask_meta); }
// For every device without a kernel of its own.
TORCH_LIBRARY_IMPL(braid, CompositeExplicitAutograd, library) {
  library.impl("keep_mask", &keep_mask_by_ops);
  library.impl("keep_mask_by_ops", &keep_mask_by_ops);
}

at::Tensor dropped(const at::Tensor& x, const at::Tensor& mask, double rate) {
  return x.mul(mask).mul_(1 / (1 - rate));
}

}  // namespace

at::Tensor keep_mask(const at::Tensor& like, double rate, RandomKey key, int64_t first) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::keep_mask", "")
                             .typed<at::Tensor(const at::Tensor&, double, int64_t, int64_t)>();
  return op.call(like.detach(), rate, static_cast<int64_t>(key.bits), first);
}

at::Tensor dropout(const at::Tensor& x, Drop drop) {
  const int64_t a_sample = x.size(0) == 0 ? 0 : x.numel() / x.size(0);
  return dropped(x, keep_mask(x, drop.rate, drop.key, drop.first_sample * a_sample), drop.rate);
}

at::Tensor drop_path(const at::Tensor& x, Drop drop) {
  at::Tensor one = x.detach();  // [batch, 1, ...]
  for (int64_t dim = 1; dim < x.dim(); ++dim) one = one.narrow(dim, 0, 1);
  return dropped(x, keep_mask(one, drop.rate, drop.key, drop.first_sample), drop.rate);
}

}  // namespace braid::kernels
