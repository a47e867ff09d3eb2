// SPDX-License-Identifier: BSD-3-Clause
// The torch wheel carries Gloo inside libtorch_cpu and none of its headers, but
// ProcessGroupGloo.hpp includes five of them. These declarations are what that header and gloo.cpp
// need: names, and the few members that are called.
#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace gloo {

class Context {
 public:
  void setTimeout(std::chrono::milliseconds timeout);
  void closeConnections();
};

namespace transport {
class Device;
class UnboundBuffer {
 public:
  virtual ~UnboundBuffer();
};
}  // namespace transport

namespace rendezvous {
// Only the base of c10d's own adapter, which is made and called inside libtorch_cpu.
class Store {
 public:
  virtual ~Store();
  virtual void set(const std::string& key, const std::vector<char>& value) = 0;
  virtual std::vector<char> get(const std::string& key) = 0;
  virtual void wait(const std::vector<std::string>& keys) = 0;
  virtual void wait(const std::vector<std::string>& keys,
                    const std::chrono::milliseconds& timeout) = 0;
};
}  // namespace rendezvous

}  // namespace gloo
