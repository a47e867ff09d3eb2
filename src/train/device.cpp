// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <string_view>

#include "braid/core/accelerator.h"
#include "braid/core/error.h"
#include "braid/train/trainer.h"

namespace braid::train {
namespace {

struct Peak {
  std::string_view name;  // part of the device's name
  double half, tf32, single;
};

// Dense TFLOP/s from the vendor's data sheets (without sparsity).
constexpr Peak peaks[] = {{"H200", 989.5e12, 494.7e12, 66.9e12},
                          {"H100 PCIe", 756e12, 378e12, 51e12},
                          {"H100", 989.5e12, 494.7e12, 66.9e12},
                          {"A100", 312e12, 156e12, 19.5e12}};

}  // namespace

c10::Device device_of(const TrainOptions& options, int gpu) {
  if (options.device == "cpu") return c10::kCPU;
  if (accelerator() != nullptr) return {c10::kCUDA, static_cast<c10::DeviceIndex>(gpu)};
  if (options.device == "cuda")
    throw ConfigError({.what = "train.device = cuda, but there is no usable GPU",
                       .why = accelerator_status().reason,
                       .fix = "run braid doctor, or train on the CPU: --set train.device=cpu"});
  return c10::kCPU;
}

double known_peak_flops(const std::string& device_name, const Precision& policy) {
  for (const Peak& peak : peaks) {
    if (device_name.find(peak.name) == std::string::npos) continue;
    if (c10::elementSize(policy.compute) == 2) return peak.half;
    if (policy.compute == c10::kFloat) return policy.tf32 ? peak.tf32 : peak.single;
  }
  return 0;
}

}  // namespace braid::train
