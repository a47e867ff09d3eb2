// SPDX-License-Identifier: BSD-3-Clause
// Kineto, torch's tracer, for one stretch of time. It exists once a process.
#pragma once
#include <filesystem>

#include <c10/core/Device.h>

namespace braid::train {

class Kineto {
 public:
  // Gets ready; on a GPU that takes a second. `with_memory`: each allocation is an event.
  Kineto(c10::Device device, bool with_memory);
  ~Kineto();  // drops what was traced
  Kineto(const Kineto&) = delete;
  Kineto& operator=(const Kineto&) = delete;

  void start();                                  // on the thread that stops it
  void stop(const std::filesystem::path& file);  // throws StorageError
  bool started() const { return started_; }

 private:
  c10::Device device_;
  bool with_memory_;
  bool started_ = false;
};

}  // namespace braid::train
