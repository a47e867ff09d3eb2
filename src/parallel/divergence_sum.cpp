// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/divergence_sum.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/zeros.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>

#include "braid/core/error.h"
#include "braid/core/mix.h"

namespace braid::parallel {
namespace {

// Elements at a time: their 64-bit copies take 32 MiB each.
constexpr int64_t sum_chunk = int64_t{1} << 22;

c10::ScalarType integer_like(const at::Tensor& tensor) {
  switch (tensor.element_size()) {
    case 1:
      return c10::kByte;
    case 2:
      return c10::kShort;
    case 4:
      return c10::kInt;
    case 8:
      return c10::kLong;
    default:
      throw InternalError(
          {.what = "checksum of elements of " + std::to_string(tensor.element_size()) + " bytes",
           .why = "elements have 1, 2, 4 or 8 bytes",
           .fix = "view complex numbers as real ones"});
  }
}

int64_t signed_word(uint64_t word) { return static_cast<int64_t>(word); }

// High bits reach the low half, where a product carries them on: else two flipped signs would
// cancel. The mask makes the shift a logical one.
at::Tensor folded(const at::Tensor& words) {
  return words.bitwise_xor(words.bitwise_right_shift(32).bitwise_and_(0xffffffff));
}

// Sum of words times an odd number of each place, modulo 2^64.
at::Tensor weighed_sum(const at::Tensor& words, int64_t first) {
  const at::Tensor places = at::arange(first, first + words.numel(), words.options());
  const at::Tensor odd = folded(places.mul_(signed_word(mix_golden))).mul_(signed_word(mix_first));
  return folded(words).mul_(odd.bitwise_or_(1)).sum();
}

}  // namespace

uint64_t host_checksum(const at::Tensor& tensor) {
  const at::Tensor dense = tensor.contiguous();
  return XXH3_64bits(dense.const_data_ptr(), dense.nbytes());
}

at::Tensor device_checksum(const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  const at::Tensor bits = tensor.detach().contiguous().view({-1}).view(integer_like(tensor));
  at::Tensor total = at::zeros({}, bits.options().dtype(c10::kLong));
  for (int64_t first = 0; first < bits.numel(); first += sum_chunk) {
    const int64_t count = std::min(sum_chunk, bits.numel() - first);
    total.add_(weighed_sum(bits.narrow(0, first, count).to(c10::kLong), first));
  }
  return total;
}

at::Tensor combined_checksum(const at::Tensor& sums) { return weighed_sum(sums, 0); }

}  // namespace braid::parallel
