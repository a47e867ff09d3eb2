// SPDX-License-Identifier: BSD-3-Clause
// What a forward pass depends on beside its inputs and parameters: torch's autocast, and what its
// generators give next. A second run has both as the first one had them.
#pragma once
#include <array>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

namespace braid::memory {

struct AutocastModes {
  struct OfDevice {
    bool on = false;
    c10::ScalarType dtype = c10::kFloat;
    bool operator==(const OfDevice&) const = default;
  };
  std::array<OfDevice, 2> devices;  // CPU, CUDA
  bool cache = true;
  bool operator==(const AutocastModes&) const = default;
};
AutocastModes autocast_modes();  // of this thread

// Sets them while it lives, where they differ.
class AutocastGuard {
 public:
  explicit AutocastGuard(const AutocastModes& modes);
  ~AutocastGuard();
  AutocastGuard(const AutocastGuard&) = delete;
  AutocastGuard& operator=(const AutocastGuard&) = delete;

 private:
  AutocastModes before_;
  bool differs_;
};

// Torch's default generators of the host and of the devices of some tensors, as they are now.
class Generators {
 public:
  Generators() = default;
  explicit Generators(const std::vector<at::Tensor>& tensors);
  // Forgets those that have not given a number since: nothing is left to restore.
  void keep_used();
  void restore() const;
  bool none() const { return kept_.empty(); }

 private:
  struct Kept {
    at::Generator generator;
    at::Generator state = {};  // a copy (CPU)
    uint64_t offset = 0;       // within the stream of its seed (CUDA)
  };
  std::vector<Kept> kept_;
};

// Puts generators to where they were in the first run while it lives.
class GeneratorsGuard {
 public:
  GeneratorsGuard(const Generators& then, const std::vector<at::Tensor>& tensors);
  ~GeneratorsGuard();
  GeneratorsGuard(const GeneratorsGuard&) = delete;
  GeneratorsGuard& operator=(const GeneratorsGuard&) = delete;

 private:
  Generators now_;
};

}  // namespace braid::memory
