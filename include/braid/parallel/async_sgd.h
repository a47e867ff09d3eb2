// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous SGD: one rank holds the weights (the server), the others (workers) send it gradients
// and get new weights, each at its own pace.
//
//   if (world.rank() == 0) {
//     parallel::AsyncServer server(params, world, {.staleness = 4});
//     // Until the last worker ends:
//     server.run([&](double scale) { optimizer.step(lr * scale); });
//   } else {
//     parallel::AsyncWorker worker(params, world);                     // gets the weights
//     for (int64_t step = 0; step < steps; ++step) {
//       loss(batch(step)).backward();
//       worker.step();                                                 // gradients out, weights in
//     }
//   }                                                                  // the worker says good-bye
//
// Messages are of host memory: parameters on a GPU are copied. The final weights are the server's.
#pragma once
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "braid/comm/group.h"
#include "braid/core/options.h"
#include "braid/core/param.h"

namespace braid::parallel {

struct AsyncOptions {
  // A worker waits rather than be more than this many updates ahead of the slowest; unset: never.
  std::optional<int64_t> staleness = {};
  // Updates in the order of the ranks, over and over: the same result on every run, at the pace of
  // the slowest. With n workers each gradient is n - 1 updates old.
  bool round_robin = false;
  bool scale_by_delay = false;  // a gradient that is k > 1 updates old has a weight of 1 / k
  // Corrects gradients for the way the weights have gone since: g + compensation g g (now - then).
  double compensation = 0;
  // A worker that dies ends the run; on: the others go on without it.
  bool keep_going = false;
};
void describe(Fields& fields, AsyncOptions& options);

// One update of the server.
struct AsyncUpdate {
  int worker = 0;       // rank in the group
  int64_t clock = 0;    // updates of this worker, with this one
  int64_t slowest = 0;  // the same of the slowest worker that has not ended
  int64_t version = 0;  // updates of all workers, with this one
  int64_t delay = 0;    // updates of others since this worker got its weights
  double scale = 1;
};

class AsyncServer {
 public:
  // Every other rank of the group is to construct a worker, with parameters of the same names,
  // shapes and dtypes.
  AsyncServer(std::vector<Param> params, const comm::Group& group, AsyncOptions options = {});
  ~AsyncServer();
  AsyncServer(AsyncServer&&) noexcept;
  AsyncServer& operator=(AsyncServer&&) noexcept;

  // `update` uses the gradients of the parameters, times `scale`; `seen` is told of every update
  // after it. Both run on threads of the server, one at a time. Returns the ranks of workers that
  // were lost (keep_going), throws what a thread threw.
  std::vector<int> run(const std::function<void(double scale)>& update,
                       const std::function<void(const AsyncUpdate&)>& seen = {});

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

class AsyncWorker {
 public:
  AsyncWorker(std::vector<Param> params, const comm::Group& group, int server = 0);
  ~AsyncWorker();  // finish(), unless an error passes: then the server learns of a lost worker
  AsyncWorker(AsyncWorker&&) noexcept;
  AsyncWorker& operator=(AsyncWorker&&) noexcept;

  // Sends the gradients (zeros where there is none), waits for weights, releases the gradients.
  // Returns the number of updates in these weights.
  int64_t step();
  void finish();  // no more steps

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace braid::parallel
