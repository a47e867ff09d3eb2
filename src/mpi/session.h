// SPDX-License-Identifier: BSD-3-Clause
// MPI of this process: started once, ended with the process; the types and operations of tensors;
// and a thread that lets calls under way go on while the program computes.
#pragma once
#include <mpi.h>

#include <atomic>
#include <condition_variable>
#include <map>
#include <mutex>
#include <thread>

#include "braid/comm/backend.h"

namespace braid::mpi {

// Throws std::runtime_error with MPI's own words if `code` is an error.
void must(int code, const char* call);

struct Reduction {
  MPI_Datatype type = MPI_DATATYPE_NULL;
  MPI_Op op = MPI_OP_NULL;
};

class Session {
 public:
  static Session& get();  // MPI can be started once a process, so there is one
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  Reduction reduction(c10::ScalarType dtype, comm::Op op) const;  // throws if MPI has none
  // A call failed: the peers do not come to MPI_Finalize any more, so this process does not wait.
  void broken() { broken_ = true; }
  bool ended() const;

  // While calls are under way, a thread asks MPI now and then, which is all that makes it work.
  void begin_call();
  void end_call();

 private:
  Session();
  ~Session();
  void start_mpi();
  void make_halves();
  void push_on();

  bool owner_ = false;  // this session started MPI
  std::atomic<bool> broken_ = false;
  std::map<c10::ScalarType, MPI_Datatype> types_;
  std::map<std::pair<c10::ScalarType, comm::Op>, MPI_Op> half_ops_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int calls_ = 0;
  bool stop_ = false;
  std::thread pusher_;
};

}  // namespace braid::mpi
