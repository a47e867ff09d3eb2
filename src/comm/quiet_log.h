// SPDX-License-Identifier: BSD-3-Clause
// LibTorch logs a page of addresses when the connection to a store breaks. Within a guard it does
// not: what that means is said in a sentence by those who asked. Its log level is one of the
// process, so the last guard to end puts it back. A level that shows more than LibTorch's own
// choice is left as it is: somebody wants to see it all.
#pragma once
#include <c10/util/Logging.h>

#include <atomic>
#include <mutex>

namespace braid::comm {

class QuietLog {
 public:
  QuietLog() {
    const std::lock_guard lock(guards().mutex);
    if (guards().count++ > 0) return;
    guards().before = FLAGS_caffe2_log_level;
    if (guards().before >= c10::GLOG_WARNING) set(c10::GLOG_FATAL);
  }
  ~QuietLog() {
    const std::lock_guard lock(guards().mutex);
    if (--guards().count == 0) set(guards().before);
  }
  QuietLog(const QuietLog&) = delete;
  QuietLog& operator=(const QuietLog&) = delete;

 private:
  struct Guards {
    std::mutex mutex;
    int count = 0;
    int before = 0;
  };
  static Guards& guards() {
    static Guards all;
    return all;
  }
  static void set(int level) { std::atomic_ref<int>(FLAGS_caffe2_log_level).store(level); }
};

}  // namespace braid::comm
