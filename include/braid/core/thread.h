// SPDX-License-Identifier: BSD-3-Clause
// Starts threads. Where the system refuses one, the error names the limits of this process.
//
//   std::thread reader = start_thread("read data (data.workers)", [&] { work(); });
//   std::future<int> merged = start_async("merge traces", [] { return merge(); });
//   need_threads(16, "compute (train.threads)");   // before a library that aborts without them
#pragma once
#include <cstdint>
#include <future>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>

namespace braid {

// Throws ConfigError. `purpose` completes "cannot start a thread to ...".
[[noreturn]] void complain_no_thread(std::string_view purpose, const std::error_code& cause);

template <class Body>
std::thread start_thread(std::string_view purpose, Body&& body) {
  try {
    return std::thread(std::forward<Body>(body));
  } catch (const std::system_error& refused) {
    complain_no_thread(purpose, refused.code());
  }
}

template <class Body>
auto start_async(std::string_view purpose, Body&& body) {
  try {
    return std::async(std::launch::async, std::forward<Body>(body));
  } catch (const std::system_error& refused) {
    complain_no_thread(purpose, refused.code());
  }
}

// Starts that many threads beside this one, ends them again, and so finds out whether the system
// allows them. Throws ConfigError.
void need_threads(int64_t count, std::string_view purpose);

}  // namespace braid
