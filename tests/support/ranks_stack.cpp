// SPDX-License-Identifier: BSD-3-Clause
#include <cxxabi.h>
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <sstream>

#include "support/ranks_crew.h"

namespace braid::test {
namespace {

// A signal handler reaches only globals; stacks are taken one at a time, when a run is lost anyway.
std::array<void*, 64> frames;
std::atomic<int> frame_count{-1};

void take_stack(int) {
  const int before = errno;
  frame_count.store(backtrace(frames.data(), static_cast<int>(frames.size())));
  errno = before;
}

std::string name_of(void* address) {
  Dl_info info = {};
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return "?";
  if (info.dli_sname != nullptr) {
    int status = 0;
    char* plain = abi::__cxa_demangle(info.dli_sname, nullptr, nullptr, &status);
    std::string name = plain != nullptr ? plain : info.dli_sname;
    std::free(plain);
    return name.substr(0, 160);
  }
  std::ostringstream text;  // a local function: addr2line knows it by its offset
  text << info.dli_fname << "+0x" << std::hex
       << static_cast<char*>(address) - static_cast<char*>(info.dli_fbase);
  return text.str();
}

}  // namespace

std::string stack_of(pthread_t thread) {
  using namespace std::chrono_literals;
  void* warm = nullptr;
  backtrace(&warm, 1);  // loads its library here, where that is allowed
  struct sigaction action = {}, before = {};
  action.sa_handler = take_stack;
  action.sa_flags = SA_RESTART;
  sigaction(SIGUSR2, &action, &before);
  frame_count = -1;
  if (pthread_kill(thread, SIGUSR2) == 0)
    for (int i = 0; i < 1000 && frame_count < 0; ++i) std::this_thread::sleep_for(1ms);
  sigaction(SIGUSR2, &before, nullptr);
  if (frame_count < 0) return "    no stack: the thread does not answer\n";
  std::ostringstream text;
  for (int i = 2; i < frame_count; ++i)  // above the handler and the kernel's frame
    text << "    #" << i - 2 << " " << name_of(frames[static_cast<size_t>(i)]) << "\n";
  return text.str();
}

}  // namespace braid::test
