// SPDX-License-Identifier: BSD-3-Clause
#include "nn/moe_random.h"

#include <cmath>
#include <numbers>

#include "braid/core/mix.h"

namespace braid::nn {
namespace {

// x ^ (x >> bits) with a logical shift; int64 shifts copy the sign.
void fold_(at::Tensor& x, int64_t bits) {
  x.bitwise_xor_(x.bitwise_right_shift(bits).bitwise_and_((int64_t{1} << (64 - bits)) - 1));
}

// The top 31 bits of mix_at(key, index), in operations on int64, which wrap in the same way.
at::Tensor words_at(const at::Tensor& index, RandomKey key) {
  at::Tensor x = index.add(1);
  x.mul_(static_cast<int64_t>(mix_golden)).add_(static_cast<int64_t>(key.bits));
  fold_(x, 30);
  x.mul_(static_cast<int64_t>(mix_first));
  fold_(x, 27);
  x.mul_(static_cast<int64_t>(mix_second));
  fold_(x, 31);
  x.bitwise_right_shift_(64 - mix_word_bits).bitwise_and_((int64_t{1} << mix_word_bits) - 1);
  return x.to(c10::kDouble);
}

}  // namespace

at::Tensor uniform_at(const at::Tensor& index, RandomKey key) {
  return words_at(index, key).mul_(std::ldexp(1.0, -mix_word_bits));
}

at::Tensor normal_at(const at::Tensor& index, RandomKey key) {
  // The middles of 2^31 equal pieces: never 0, whose logarithm has no end.
  at::Tensor radius = words_at(index, key.with("radius")).add_(0.5);
  radius.mul_(std::ldexp(1.0, -mix_word_bits)).log_().mul_(-2).sqrt_();
  const at::Tensor angle = uniform_at(index, key.with("angle")).mul_(2 * std::numbers::pi);
  return radius.mul_(angle.cos());
}

}  // namespace braid::nn
