// SPDX-License-Identifier: BSD-3-Clause
#include "comm/gloo_door.h"

#include <linux/filter.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <compare>
#include <cstdio>
#include <filesystem>
#include <iterator>
#include <string>

namespace braid::comm {
namespace {

struct ListeningSocket {
  ino_t file = 0;  // its identity: a number that was closed is given out again at once
  int number = -1;
  auto operator<=>(const ListeningSocket&) const = default;
};

// Sockets of this process that listen.
std::vector<ListeningSocket> listening_sockets() {
  std::vector<ListeningSocket> found;
  std::error_code gone;
  for (std::filesystem::directory_iterator at("/proc/self/fd", gone), end; at != end;
       at.increment(gone)) {
    const int number = std::stoi(at->path().filename().string());
    struct stat about = {};
    int listens = 0;
    socklen_t length = sizeof(listens);
    if (::getsockopt(number, SOL_SOCKET, SO_ACCEPTCONN, &listens, &length) == 0 && listens != 0 &&
        ::fstat(number, &about) == 0)
      found.push_back({.file = about.st_ino, .number = number});
  }
  std::sort(found.begin(), found.end());
  return found;
}

// A filter of the socket sees the packets that ask for a connection; this one lets none pass.
// Connections that are there already keep no filter.
bool let_nobody_in(int listener) {
  sock_filter drop = {.code = BPF_RET | BPF_K, .jt = 0, .jf = 0, .k = 0};
  const sock_fprog program = {.len = 1, .filter = &drop};
  return ::setsockopt(listener, SOL_SOCKET, SO_ATTACH_FILTER, &program, sizeof(program)) == 0;
}

bool let_all_in(int listener) {
  const int unused = 0;
  return ::setsockopt(listener, SOL_SOCKET, SO_DETACH_FILTER, &unused, sizeof(unused)) == 0;
}

void say_that_it_stays_open() {
  std::fputs(
      "braid: note: the port of Gloo stays open while this run lasts (the kernel refuses a filter "
      "of the socket): use a network of trusted hosts alone (docs/launch.md)\n",
      stderr);
}

}  // namespace

std::shared_ptr<GlooDoor> GlooDoor::around(const std::function<void()>& make_device) {
  static std::mutex one_at_a_time;  // ranks may be threads of one process
  const std::lock_guard lock(one_at_a_time);
  const std::vector<ListeningSocket> before = listening_sockets();
  make_device();
  auto door = std::make_shared<GlooDoor>();
  std::vector<ListeningSocket> made;
  const std::vector<ListeningSocket> after = listening_sockets();
  std::set_difference(after.begin(), after.end(), before.begin(), before.end(),
                      std::back_inserter(made));
  for (const ListeningSocket& one : made) door->listeners_.push_back(one.number);
  if (door->listeners_.empty() ||
      !std::all_of(door->listeners_.begin(), door->listeners_.end(), let_nobody_in))
    say_that_it_stays_open();
  return door;
}

void GlooDoor::change(int groups) {
  const std::lock_guard lock(mutex_);
  const bool was_open = connecting_ > 0;
  connecting_ += groups;
  const bool is_open = connecting_ > 0;
  if (was_open == is_open) return;
  std::for_each(listeners_.begin(), listeners_.end(), is_open ? let_all_in : let_nobody_in);
}

}  // namespace braid::comm
