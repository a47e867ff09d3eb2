// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/dropout.h"

#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/mul.h>
#include <torch/library.h>

#include <optional>
#include <string>

#include "braid/core/in_parts.h"
#include "braid/core/mix.h"
#include "kernels/drop_window.h"

namespace braid::kernels {
namespace {

using Number = std::optional<at::Tensor>;

// A step on the device makes the key of its masks: RandomKey::with.
uint64_t host_key(int64_t key, const Number& step) {
  const RandomKey base{static_cast<uint64_t>(key)};
  return (step ? base.with(static_cast<uint64_t>(*step->const_data_ptr<int64_t>())) : base).bits;
}

at::Tensor keep_mask_cpu(const at::Tensor& like, double rate, int64_t key, int64_t first,
                         const Number& step) {
  at::Tensor mask = at::empty(like.sizes(), like.options().dtype(c10::kBool));
  bool* out = static_cast<bool*>(mask.mutable_data_ptr());
  const uint64_t limit = mix_threshold(rate), bits = host_key(key, step);
  in_parts(mask.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = mix_keeps(bits, static_cast<uint64_t>(first + i), limit);
  });
  return mask;
}

// x ^ (x >> bits) with a logical shift; int64 shifts copy the sign.
void xor_shift_(at::Tensor& x, int64_t bits) {
  x.bitwise_xor_(x.bitwise_right_shift(bits).bitwise_and_((int64_t{1} << (64 - bits)) - 1));
}

// mix_keeps in tensor operations on int64 (which wrap in the same way), for devices without a
// kernel of their own.
void mix_by_ops_(at::Tensor& x) {  // mix() without its first sum
  xor_shift_(x, 30);
  x.mul_(static_cast<int64_t>(mix_first));
  xor_shift_(x, 27);
  x.mul_(static_cast<int64_t>(mix_second));
  xor_shift_(x, 31);
}

at::Tensor key_by_ops(int64_t key, const at::Tensor& step) {  // key ^ mix(step + 1), mixed
  const auto golden = static_cast<int64_t>(mix_golden);
  at::Tensor word = step.add(1).add_(golden);
  mix_by_ops_(word);
  word.bitwise_xor_(key).add_(golden);
  mix_by_ops_(word);
  return word;
}

// x: places, used up
at::Tensor keeps_by_ops(at::Tensor x, double rate, int64_t key, const Number& step) {
  x.add_(1).mul_(static_cast<int64_t>(mix_golden));
  if (step)
    x.add_(key_by_ops(key, *step));
  else
    x.add_(key);
  mix_by_ops_(x);
  x.bitwise_right_shift_(64 - mix_word_bits).bitwise_and_((int64_t{1} << mix_word_bits) - 1);
  return x.ge(static_cast<int64_t>(mix_threshold(rate)));
}

at::Tensor keep_mask_by_ops(const at::Tensor& like, double rate, int64_t key, int64_t first,
                            const Number& step) {
  const auto options = like.options().dtype(c10::kLong);
  return keeps_by_ops(at::arange(first, first + like.numel(), options), rate, key, step)
      .view(like.sizes());
}

at::Tensor keep_mask_meta(const at::Tensor& like, double, int64_t, int64_t, const Number&) {
  return at::empty(like.sizes(), like.options().dtype(c10::kBool));
}

at::Tensor keep_part_cpu(const at::Tensor& like, double rate, int64_t key, int64_t first,
                         at::IntArrayRef whole, at::IntArrayRef held, const Number& step) {
  at::Tensor mask = at::empty(like.sizes(), like.options().dtype(c10::kBool));
  bool* out = static_cast<bool*>(mask.mutable_data_ptr());
  const uint64_t limit = mix_threshold(rate), bits = host_key(key, step);
  const DropPlaces places = drop_places(like.sizes(), whole, held, first);
  in_parts(mask.numel(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i)
      out[i] = mix_keeps(bits, static_cast<uint64_t>(places.of(i)), limit);
  });
  return mask;
}

// Places in the whole batch of what `like` holds, in tensor operations.
at::Tensor places_by_ops(const at::Tensor& like, int64_t first, at::IntArrayRef whole,
                         at::IntArrayRef held) {
  const DropPlaces places = drop_places(like.sizes(), whole, held, first);
  const auto options = like.options().dtype(c10::kLong);
  at::Tensor sum = at::full({1}, first, options);
  for (int dim = 0; dim < places.dims; ++dim) {
    const DropSide& side = places.sides[dim];
    at::Tensor index = at::arange(side.size, options);
    for (int i = 0; i < side.ranges; ++i)  // each range moves what stands from its start on
      index.add_(at::arange(side.size, options)
                     .ge(side.from[i])
                     .to(c10::kLong)
                     .mul_(side.shift[i] - (i > 0 ? side.shift[i - 1] : 0)));
    std::vector<int64_t> shape(static_cast<size_t>(places.dims), 1);
    shape[static_cast<size_t>(dim)] = side.size;
    sum = sum.add(index.mul_(side.stride).view(shape));
  }
  return sum.expand(like.sizes()).reshape({-1});
}

at::Tensor keep_part_by_ops(const at::Tensor& like, double rate, int64_t key, int64_t first,
                            at::IntArrayRef whole, at::IntArrayRef held, const Number& step) {
  return keeps_by_ops(places_by_ops(like, first, whole, held), rate, key, step).view(like.sizes());
}

at::Tensor keep_part_meta(const at::Tensor& like, double, int64_t, int64_t, at::IntArrayRef,
                          at::IntArrayRef, const Number&) {
  return at::empty(like.sizes(), like.options().dtype(c10::kBool));
}

constexpr const char* keep_mask_arguments =
    "(Tensor like, float rate, int key, int first, Tensor? step=None) -> Tensor";
constexpr const char* keep_part_arguments =
    "(Tensor like, float rate, int key, int first, int[] whole, int[] held, Tensor? "
    "step=None) -> Tensor";

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def((std::string("keep_part") + keep_part_arguments).c_str());
  library.def((std::string("keep_part_by_ops") + keep_part_arguments).c_str());
  library.def((std::string("keep_mask") + keep_mask_arguments).c_str());
  library.def((std::string("keep_mask_by_ops") + keep_mask_arguments).c_str());
}
TORCH_LIBRARY_IMPL(braid, CPU, library) {
  library.impl("keep_mask", &keep_mask_cpu);
  library.impl("keep_part", &keep_part_cpu);
}
TORCH_LIBRARY_IMPL(braid, Meta, library) {
  library.impl("keep_mask", &keep_mask_meta);
  library.impl("keep_part", &keep_part_meta);
}
// For every device without a kernel of its own.
TORCH_LIBRARY_IMPL(braid, CompositeExplicitAutograd, library) {
  library.impl("keep_mask", &keep_mask_by_ops);
  library.impl("keep_mask_by_ops", &keep_mask_by_ops);
  library.impl("keep_part", &keep_part_by_ops);
  library.impl("keep_part_by_ops", &keep_part_by_ops);
}

Number number_of(const at::Tensor& step) { return step.defined() ? Number(step) : std::nullopt; }

at::Tensor dropped(const at::Tensor& x, const at::Tensor& mask, double rate) {
  return x.mul(mask).mul_(1 / (1 - rate));
}

}  // namespace

at::Tensor keep_mask(const at::Tensor& like, double rate, RandomKey key, int64_t first,
                     const at::Tensor& step) {
  static const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow("braid::keep_mask", "")
          .typed<at::Tensor(const at::Tensor&, double, int64_t, int64_t, const Number&)>();
  return op.call(like.detach(), rate, static_cast<int64_t>(key.bits), first, number_of(step));
}

at::Tensor keep_mask(const at::Tensor& like, const Drop& drop) {
  std::vector<int64_t> whole = like.sizes().vec(), held;
  for (const DropWindow& window : drop.windows) {
    whole.at(static_cast<size_t>(window.dim)) = window.whole;
    for (const Range& range : window.ranges)
      held.insert(held.end(), {window.dim, range.begin, range.end});
  }
  int64_t a_sample = 1;
  for (size_t dim = 1; dim < whole.size(); ++dim) a_sample *= whole[dim];
  const int64_t first = drop.first_sample * a_sample;
  if (held.empty()) return keep_mask(like, drop.rate, drop.key, first, drop.step);
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::keep_part", "")
                             .typed<at::Tensor(const at::Tensor&, double, int64_t, int64_t,
                                               at::IntArrayRef, at::IntArrayRef, const Number&)>();
  return op.call(like.detach(), drop.rate, static_cast<int64_t>(drop.key.bits), first, whole, held,
                 number_of(drop.step));
}

at::Tensor dropout(const at::Tensor& x, Drop drop) {
  return dropped(x, keep_mask(x, drop), drop.rate);
}

at::Tensor drop_path(const at::Tensor& x, Drop drop) { return drop_branch(x, drop).value(); }

at::Tensor Branch::value() const { return keep.defined() ? dropped(x, keep, rate) : x; }

Branch drop_branch(const at::Tensor& x, const Drop& drop) {
  at::Tensor one = x.detach();  // [batch, 1, ...]
  for (int64_t dim = 1; dim < x.dim(); ++dim) one = one.narrow(dim, 0, 1);
  Branch branch(x);
  branch.keep = keep_mask(one, drop.rate, drop.key, drop.first_sample, drop.step);
  branch.rate = drop.rate;
  return branch;
}

}  // namespace braid::kernels
