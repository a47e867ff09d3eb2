// SPDX-License-Identifier: BSD-3-Clause
#include "memory/recompute_modes.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/autocast_mode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <mutex>

#include "braid/core/dry.h"

namespace braid::memory {
namespace {

constexpr std::array<c10::DeviceType, 2> autocast_devices = {c10::kCPU, c10::kCUDA};

void set_modes(const AutocastModes& modes) {
  for (size_t i = 0; i < autocast_devices.size(); ++i) {
    at::autocast::set_autocast_enabled(autocast_devices[i], modes.devices[i].on);
    at::autocast::set_autocast_dtype(autocast_devices[i], modes.devices[i].dtype);
  }
  at::autocast::set_autocast_cache_enabled(modes.cache);
}

bool same_place(const at::Generator& a, const at::Generator& b) {
  auto* const first = at::check_generator<at::CPUGeneratorImpl>(a);
  auto* const second = at::check_generator<at::CPUGeneratorImpl>(b);
  const at::mt19937_data_pod x = first->engine().data(), y = second->engine().data();
  return x.left_ == y.left_ && x.next_ == y.next_ && x.state_ == y.state_ &&
         first->next_float_normal_sample() == second->next_float_normal_sample() &&
         first->next_double_normal_sample() == second->next_double_normal_sample();
}

void copy_place(at::Generator to, const at::Generator& from) {
  auto* const target = at::check_generator<at::CPUGeneratorImpl>(to);
  auto* const source = at::check_generator<at::CPUGeneratorImpl>(from);
  target->set_engine(source->engine());
  target->set_next_float_normal_sample(source->next_float_normal_sample());
  target->set_next_double_normal_sample(source->next_double_normal_sample());
}

// Nothing while a graph is captured: its generator says no offset then.
std::optional<uint64_t> offset_of(at::Generator generator) {
  try {
    const std::lock_guard lock(generator.mutex());
    return generator.get_offset();
  } catch (const c10::Error&) {
    return std::nullopt;
  }
}

}  // namespace

AutocastModes autocast_modes() {
  AutocastModes modes;
  for (size_t i = 0; i < autocast_devices.size(); ++i)
    modes.devices[i] = {at::autocast::is_autocast_enabled(autocast_devices[i]),
                        at::autocast::get_autocast_dtype(autocast_devices[i])};
  modes.cache = at::autocast::is_autocast_cache_enabled();
  return modes;
}

AutocastGuard::AutocastGuard(const AutocastModes& modes)
    : before_(autocast_modes()), differs_(!(before_ == modes)) {
  if (!differs_) return;
  set_modes(modes);
  at::autocast::increment_nesting();
}

AutocastGuard::~AutocastGuard() {
  if (!differs_) return;
  if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
  set_modes(before_);
}

Generators::Generators(const std::vector<at::Tensor>& tensors) {
  at::Generator host = at::globalContext().defaultGenerator(c10::kCPU);
  {
    const std::lock_guard lock(host.mutex());
    kept_.push_back({host, host.clone()});
  }
  std::vector<c10::Device> seen;
  for (const at::Tensor& tensor : tensors) {
    if (!has_data(tensor) || !tensor.is_cuda()) continue;
    if (std::find(seen.begin(), seen.end(), tensor.device()) != seen.end()) continue;
    seen.push_back(tensor.device());
    const at::Generator there = at::globalContext().defaultGenerator(tensor.device());
    if (const auto offset = offset_of(there)) kept_.push_back({there, {}, *offset});
  }
}

void Generators::keep_used() {
  std::erase_if(kept_, [](Kept& kept) {
    if (!kept.state.defined())
      return offset_of(kept.generator).value_or(kept.offset) == kept.offset;
    const std::lock_guard lock(kept.generator.mutex());
    return same_place(kept.generator, kept.state);
  });
}

void Generators::restore() const {
  for (Kept kept : kept_) {
    const std::lock_guard lock(kept.generator.mutex());
    if (kept.state.defined())
      copy_place(kept.generator, kept.state);
    else
      kept.generator.set_offset(kept.offset);
  }
}

GeneratorsGuard::GeneratorsGuard(const Generators& then, const std::vector<at::Tensor>& tensors) {
  if (then.none()) return;
  now_ = Generators(tensors);
  then.restore();
}

GeneratorsGuard::~GeneratorsGuard() { now_.restore(); }

}  // namespace braid::memory
