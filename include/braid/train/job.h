// SPDX-License-Identifier: BSD-3-Clause
// The ranks of a run, met and watched: what `braid train` opens before the session.
//
//   train::Job job(options, launch::environment());
//   train::Session session = train::open_session(options, {.ranks = job.ranks()});
//   return job.watched([&] { return session.trainer->fit(); });
#pragma once
#include <memory>
#include <string>

#include "braid/comm/watch.h"
#include "braid/core/error.h"
#include "braid/launch/world.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"

namespace braid::train {

// Other ranks are lost, and the watch has said so on one of the terminals: nothing to add but the
// exit code.
struct LostRanks : CommError {
  using CommError::CommError;
};

class Job {
 public:
  // Meets the other ranks. Throws ConfigError if they are not as many as the mesh asks for.
  Job(const RunOptions& options, const launch::Environment& here);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const Ranks& ranks() const { return ranks_; }
  // Runs `body`; if it throws, the other ranks learn why before the exception goes on, as LostRanks
  // if one of them was its cause. What `body` makes should outlive it: a checkpoint under way takes
  // time to be given up, and the others wait.
  template <class Body>
  auto watched(const Body& body) {
    try {
      return body();
    } catch (const std::exception& error) {
      give_up(error);
      throw;
    }
  }

 private:
  void give_up(const std::exception& error);
  launch::World world_;
  Ranks ranks_;
  std::unique_ptr<comm::Watch> watch_;  // null: one rank alone
  std::string now_;                     // the step that the ranks are in
  bool broken_ = false;
};

}  // namespace braid::train
