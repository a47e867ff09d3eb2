// SPDX-License-Identifier: BSD-3-Clause
#include "train/profiler_kineto.h"

#include <torch/csrc/autograd/profiler_kineto.h>

#include <atomic>
#include <cerrno>
#include <set>

#include "braid/core/accelerator.h"
#include "braid/core/error.h"
#include "braid/core/fs.h"

namespace braid::train {
namespace {

namespace kineto = torch::profiler::impl;

std::atomic<bool> kineto_in_use = false;  // the tracer itself is one for the process

// Threads of the autograd engine work for the thread that calls them, and are traced with it.
kineto::ProfilerConfig kineto_config(bool with_memory) {
  return kineto::ProfilerConfig(kineto::ProfilerState::KINETO, /*report_input_shapes=*/true,
                                with_memory);
}

std::set<kineto::ActivityType> activities_of(c10::Device device) {
  std::set<kineto::ActivityType> all = {kineto::ActivityType::CPU};
  if (device.is_cuda()) all.insert(kineto::ActivityType::CUDA);
  return all;
}

void wait_for_device(c10::Device device) {
  if (device.is_cuda()) accelerator()->synchronize(device.index());
}

}  // namespace

Kineto::Kineto(c10::Device device, bool with_memory) : device_(device), with_memory_(with_memory) {
  if (kineto_in_use.exchange(true))
    throw ConfigError({.what = "a profile is under way in this process already",
                       .why = "torch's tracer exists once a process",
                       .fix = "profile ranks that are processes, and one run at a time"});
  torch::autograd::profiler::prepareProfiler(kineto_config(with_memory_), activities_of(device_));
}

Kineto::~Kineto() {
  if (started_) torch::autograd::profiler::disableProfiler();
  kineto_in_use = false;
}

void Kineto::start() {
  wait_for_device(device_);
  torch::autograd::profiler::enableProfiler(kineto_config(with_memory_), activities_of(device_));
  started_ = true;
}

void Kineto::stop(const std::filesystem::path& file) {
  wait_for_device(device_);
  started_ = false;
  const auto result = torch::autograd::profiler::disableProfiler();
  std::filesystem::remove(file);
  result->save(file.string());
  if (!std::filesystem::exists(file)) throw_storage("write", file, errno == 0 ? EIO : errno);
}

}  // namespace braid::train
