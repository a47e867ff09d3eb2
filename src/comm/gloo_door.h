// SPDX-License-Identifier: BSD-3-Clause
// Gloo listens on a TCP port as long as a group lives, takes whoever connects for a peer, and holds
// every silent connection open. It needs the port only while a group connects: at all other times
// the kernel drops what comes for it.
//
//   auto door = GlooDoor::around([&] { device = createDeviceForHostname(address); });
//   { const GlooDoor::Open open(*door); ... the ranks connect ... }
#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace braid::comm {

class GlooDoor {
 public:
  // Closes the doors of all sockets that begin to listen while `make_device` runs. The device must
  // outlive it.
  static std::shared_ptr<GlooDoor> around(const std::function<void()>& make_device);

  class Open {
   public:
    explicit Open(GlooDoor& door) : door_(door) { door_.change(+1); }
    ~Open() { door_.change(-1); }
    Open(const Open&) = delete;
    Open& operator=(const Open&) = delete;

   private:
    GlooDoor& door_;
  };

 private:
  void change(int groups);
  std::vector<int> listeners_;  // descriptors of Gloo
  std::mutex mutex_;
  int connecting_ = 0;  // groups
};

}  // namespace braid::comm
