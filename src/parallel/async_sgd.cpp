// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/async_sgd.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <mutex>
#include <thread>
#include <utility>

#include "braid/core/error.h"
#include "braid/core/thread.h"
#include "parallel/async_sgd_wire.h"

namespace braid::parallel {

struct AsyncPeer {  // a worker as the server sees it
  AsyncPeer(int worker, AsyncWire its_wire, const std::vector<Param>& params)
      : rank(worker), wire(std::move(its_wire)), gradients(params), weights(params) {}
  int rank;
  AsyncWire wire;
  AsyncMessage gradients;  // what came last
  AsyncMessage weights;    // what was sent last: the weights that its gradients are of
  int64_t clock = 0;       // its updates
  bool ended = false;
};

namespace {

struct WorkerLost {  // thrown by talk_to alone, so that an error of the update is not taken for it
  Complaint reason;
};

template <class Talk>
void talk_to(Talk talk) {
  try {
    talk();
  } catch (const CommError& error) {
    throw WorkerLost{error.complaint()};
  }
}

}  // namespace

void describe(Fields& fields, AsyncOptions& o) {
  fields.field("staleness", o.staleness,
               "updates that a worker may be ahead of the slowest; none: any number",
               {.at_least = 1});
  fields.field("round_robin", o.round_robin,
               "updates in the order of the ranks: the same result on every run");
  fields.field("scale_by_delay", o.scale_by_delay, "divide a step by the age of its gradient");
  fields.field("compensation", o.compensation,
               "lambda of g + lambda g g (weights now - weights then); 0: off", {.at_least = 0});
  fields.field("keep_going", o.keep_going, "go on without a worker that dies");
}

struct AsyncServer::Impl {
  std::vector<Param> params;
  AsyncOptions options;
  std::vector<AsyncPeer> peers;
  std::function<void(double)> update;
  std::function<void(const AsyncUpdate&)> seen;

  std::mutex mutex;  // of all below, and of the parameters
  std::condition_variable changed;
  int64_t version = 0;
  size_t turn = 0;  // of peers: whose update is next, if they have an order
  std::vector<int> lost;
  std::exception_ptr failure;

  void serve(AsyncPeer& peer);
  bool serve_once(AsyncPeer& peer);
  void apply(AsyncPeer& peer);
  void take_gradients(const AsyncPeer& peer) const;
  void copy_weights(AsyncPeer& peer) const;
  void end(AsyncPeer& peer);
  void pass_turn();
  void fail(std::exception_ptr error);
  int64_t slowest() const;
  bool may_go_on(const AsyncPeer& peer) const;
};

void AsyncServer::Impl::copy_weights(AsyncPeer& peer) const {
  for (size_t i = 0; i < params.size(); ++i) peer.weights.parts[i].copy_(params[i].tensor.detach());
  peer.weights.set(AsyncWord::weights, version);
}

int64_t AsyncServer::Impl::slowest() const {
  int64_t least = -1;
  for (const AsyncPeer& peer : peers)
    if (!peer.ended && (least < 0 || peer.clock < least)) least = peer.clock;
  return std::max(least, int64_t{0});
}

// A bound on where the next update would take it. An order of its own keeps all within one.
bool AsyncServer::Impl::may_go_on(const AsyncPeer& peer) const {
  if (failure || options.round_robin || !options.staleness) return true;
  return peer.clock + 1 - slowest() <= *options.staleness;
}

void AsyncServer::Impl::pass_turn() {
  for (size_t tries = 0; tries < peers.size(); ++tries) {
    turn = (turn + 1) % peers.size();
    if (!peers[turn].ended) return;
  }
}

void AsyncServer::Impl::end(AsyncPeer& peer) {
  const std::lock_guard lock(mutex);
  peer.ended = true;
  if (&peers[turn] == &peer) pass_turn();
  changed.notify_all();
}

void AsyncServer::Impl::fail(std::exception_ptr error) {
  {
    const std::lock_guard lock(mutex);
    if (failure) return;
    failure = std::move(error);
    changed.notify_all();
  }
  for (const AsyncPeer& peer : peers) peer.wire.abort();  // ends the waits of the other threads
}

// Gradients as they came, moved to the parameters' device, corrected for the way gone since.
void AsyncServer::Impl::take_gradients(const AsyncPeer& peer) const {
  for (size_t i = 0; i < params.size(); ++i) {
    const at::Tensor now = params[i].tensor.detach();
    const at::Tensor grad = peer.gradients.parts[i].to(now.device());
    if (options.compensation != 0) {
      const at::Tensor way = now.sub(peer.weights.parts[i].to(now.device()));
      grad.add_(way.mul_(grad).mul_(grad), options.compensation);
    }
    params[i].tensor.mutable_grad() = grad;
  }
}

void AsyncServer::Impl::apply(AsyncPeer& peer) {
  AsyncUpdate told{.worker = peer.rank, .delay = version - peer.weights.number()};
  if (options.scale_by_delay && told.delay > 1) told.scale = 1 / static_cast<double>(told.delay);
  take_gradients(peer);
  update(told.scale);
  for (const Param& param : params) param.tensor.mutable_grad().reset();
  told.version = ++version;
  told.clock = ++peer.clock;
  told.slowest = slowest();
  if (seen) seen(told);
}

// Gives false after the last message of a worker, or if the run has failed.
bool AsyncServer::Impl::serve_once(AsyncPeer& peer) {
  talk_to([&] { peer.wire.receive(peer.gradients); });
  if (peer.gradients.word() == AsyncWord::good_bye) return false;
  {
    std::unique_lock lock(mutex);
    if (options.round_robin) changed.wait(lock, [&] { return failure || &peers[turn] == &peer; });
    if (failure) return false;
    apply(peer);
    pass_turn();
    changed.notify_all();
    changed.wait(lock, [&] { return may_go_on(peer); });
    if (failure) return false;
    copy_weights(peer);
  }
  talk_to([&] { peer.wire.send(peer.weights); });
  return true;
}

void AsyncServer::Impl::serve(AsyncPeer& peer) {
  const at::NoGradGuard no_grad;
  try {
    while (serve_once(peer)) {
    }
  } catch (const WorkerLost& gone) {
    if (options.keep_going) {
      const std::lock_guard lock(mutex);
      lost.push_back(peer.rank);
    } else {
      fail(std::make_exception_ptr(CommError(
          {.what = fmt::format("worker rank {} was lost after {} updates: {}", peer.rank,
                               peer.clock, gone.reason.what),
           .why = "without keep_going a run is one of all its workers",
           .fix = "look for what that rank printed; set keep_going to go on without it"})));
    }
  } catch (...) {
    fail(std::current_exception());
  }
  end(peer);
}

AsyncServer::AsyncServer(std::vector<Param> params, const comm::Group& group, AsyncOptions options)
    : impl_(std::make_unique<Impl>()) {
  const at::NoGradGuard no_grad;
  impl_->params = std::move(params);
  impl_->options = options;
  impl_->peers.reserve(static_cast<size_t>(group.size()));
  for (int rank = 0; rank < group.size(); ++rank) {
    if (rank == group.rank()) continue;
    AsyncWire wire(group, group.rank(), rank);
    wire.meet(impl_->params);
    AsyncPeer& peer = impl_->peers.emplace_back(rank, std::move(wire), impl_->params);
    impl_->copy_weights(peer);
    peer.wire.send(peer.weights);
  }
}

AsyncServer::~AsyncServer() = default;
AsyncServer::AsyncServer(AsyncServer&&) noexcept = default;
AsyncServer& AsyncServer::operator=(AsyncServer&&) noexcept = default;

std::vector<int> AsyncServer::run(const std::function<void(double)>& update,
                                  const std::function<void(const AsyncUpdate&)>& seen) {
  Impl& impl = *impl_;
  impl.update = update;
  impl.seen = seen;
  std::vector<std::thread> threads;
  threads.reserve(impl.peers.size());
  try {
    for (AsyncPeer& peer : impl.peers)
      if (!peer.ended)
        threads.push_back(
            start_thread("serve a worker's updates", [&impl, &peer] { impl.serve(peer); }));
  } catch (...) {
    impl.fail(std::current_exception());  // ends those that did start
  }
  for (std::thread& thread : threads) thread.join();
  if (impl.failure) std::rethrow_exception(impl.failure);
  return impl.lost;
}

struct AsyncWorker::Impl {
  Impl(std::vector<Param> given, AsyncWire to_server)
      : params(std::move(given)), wire(std::move(to_server)), message(params) {}
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;
  void receive_weights() const;
  void finish();

  std::vector<Param> params;
  AsyncWire wire;
  AsyncMessage message;
  int errors = std::uncaught_exceptions();
  bool ended = false;
};

void AsyncWorker::Impl::receive_weights() const {
  wire.receive(message);
  for (size_t i = 0; i < params.size(); ++i) params[i].tensor.detach().copy_(message.parts[i]);
}

void AsyncWorker::Impl::finish() {
  if (ended) return;
  ended = true;
  message.set(AsyncWord::good_bye, 0);
  wire.send(message);
}

AsyncWorker::Impl::~Impl() {
  if (ended) return;
  if (std::uncaught_exceptions() > errors) {
    wire.abort();
    return;
  }
  try {
    finish();
  } catch (const std::exception&) {  // the server is gone: nobody to say good-bye to
  }
}

AsyncWorker::AsyncWorker(std::vector<Param> params, const comm::Group& group, int server) {
  const at::NoGradGuard no_grad;
  AsyncWire wire(group, server, group.rank());
  wire.meet(params);
  impl_ = std::make_unique<Impl>(std::move(params), std::move(wire));
  impl_->receive_weights();
}

AsyncWorker::~AsyncWorker() = default;
AsyncWorker::AsyncWorker(AsyncWorker&&) noexcept = default;
AsyncWorker& AsyncWorker::operator=(AsyncWorker&&) noexcept = default;

int64_t AsyncWorker::step() {
  Impl& impl = *impl_;
  const at::NoGradGuard no_grad;
  for (size_t i = 0; i < impl.params.size(); ++i) {
    at::Tensor& grad = impl.params[i].tensor.mutable_grad();
    if (grad.defined()) {
      impl.message.parts[i].copy_(grad);
    } else {
      impl.message.parts[i].zero_();
    }
    grad.reset();
  }
  impl.message.set(AsyncWord::gradients, 0);
  impl.wire.send(impl.message);
  impl.receive_weights();
  return impl.message.number();
}

void AsyncWorker::finish() { impl_->finish(); }

}  // namespace braid::parallel
