// SPDX-License-Identifier: BSD-3-Clause
// The communicators of one group, and the news that one of its ranks gave the group up.
#pragma once
#include <atomic>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "mpi/session.h"

namespace braid::mpi {

class Line {
 public:
  // Takes `comm` over; all its ranks come here together.
  Line(MPI_Comm comm, double timeout_seconds);
  ~Line();
  Line(const Line&) = delete;
  Line& operator=(const Line&) = delete;

  MPI_Comm comm() const { return comm_; }  // collectives and messages
  MPI_Comm side() const { return side_; }  // exchanges between pairs, and what follows
  int rank() const { return rank_; }
  int size() const { return size_; }

  // Polls until `over`. Throws after the timeout, and when a rank gave up.
  void wait_for(const std::function<bool()>& over) const;
  void check() const;  // throws if a rank gave up
  void give_up();      // tells all ranks, once
  // A communicator of some ranks, made when all of them are there. Throws naming those missing.
  MPI_Comm make(const std::vector<int>& ranks, const std::string& name) const;

  enum Tag : int { gave_up = 0, exchange = 1, first_split = 2 };

 private:
  void meet(const std::vector<int>& ranks, int tag) const;

  MPI_Comm comm_ = MPI_COMM_NULL, side_ = MPI_COMM_NULL;
  int rank_ = 0, size_ = 1;
  double timeout_seconds_;
  mutable std::atomic<int> quitter_ = -1;
};

}  // namespace braid::mpi
