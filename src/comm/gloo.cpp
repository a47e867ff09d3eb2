// SPDX-License-Identifier: BSD-3-Clause
// Gloo, as c10d brings it: TCP sockets between CPU processes (or threads).
#include <ATen/ops/from_blob.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include <algorithm>
#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <stdexcept>
#include <thread>

#include "braid/comm/backend.h"
#include "braid/comm/store.h"
#include "braid/core/error.h"
#include "braid/core/thread.h"
#include "comm/c10d_store.h"
#include "comm/gloo_door.h"
#include "comm/pipe_guard.h"
#include "comm/shares.h"
#include "comm/staged.h"
#include "comm/unobserved.h"

namespace braid::comm {
namespace {

struct GlooDevice {
  std::shared_ptr<::gloo::transport::Device> device;
  std::shared_ptr<GlooDoor> door;
};
using C10dWork = c10::intrusive_ptr<c10d::Work>;

std::chrono::milliseconds gloo_timeout(const GlooOptions& options) {
  return std::chrono::milliseconds(static_cast<int64_t>(options.timeout_seconds * 1000));
}

class GlooSockets final : public c10d::ProcessGroupGloo {
 public:
  using ProcessGroupGloo::ProcessGroupGloo;
  void close() {
    for (const auto& context : contexts_) context->closeConnections();
  }
};

// Lets a wait end when its group is given up: closing our own connections wakes the peers, but
// nobody here.
class GlooWaits : public std::enable_shared_from_this<GlooWaits> {
 public:
  void give_up() {
    const std::lock_guard lock(mutex_);
    given_up_ = true;
    for (c10d::Work* message : messages_) message->abort();
    changed_.notify_all();
  }
  bool given_up() const {
    const std::lock_guard lock(mutex_);
    return given_up_;
  }

  void wait_for_collective(c10d::Work& work) {
    if (!work.isCompleted()) {
      const auto future = work.getFuture();
      future->addCallback([self = shared_from_this()](c10::ivalue::Future&) {
        const std::lock_guard lock(self->mutex_);
        self->changed_.notify_all();
      });
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return given_up_ || future->completed(); });
      if (!future->completed()) throw_given_up();
    }
    work.wait();
  }

  void wait_for_message(c10d::Work& work) {
    {
      const std::lock_guard lock(mutex_);
      if (given_up_) throw_given_up();
      messages_.push_back(&work);
    }
    const auto forget = c10::make_scope_exit([&] {
      const std::lock_guard lock(mutex_);
      std::erase(messages_, &work);
    });
    if (!work.wait()) throw_given_up();
  }

 private:
  [[noreturn]] static void throw_given_up() {
    throw std::runtime_error("this rank gave up the group");
  }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool given_up_ = false;
  std::vector<c10d::Work*> messages_;  // waited for now
};

// Gloo's threads let go of a call some time after it ended; what a step takes must not depend on
// when. So they hold tensors that keep the memory only until the call has been waited for.
class GlooLoan {
 public:
  at::Tensor lend(const at::Tensor& tensor) const {
    owners_->push_back(tensor);
    return at::from_blob(
        tensor.data_ptr(), tensor.sizes(), tensor.strides(), [owners = owners_](void*) {},
        tensor.options());
  }
  void end() const { owners_->clear(); }

 private:
  std::shared_ptr<std::vector<at::Tensor>> owners_ = std::make_shared<std::vector<at::Tensor>>();
};

// One call may be several of Gloo, and something to compute at its end.
class GlooWork final : public Work {
 public:
  GlooWork(std::shared_ptr<GlooWaits> waits, GlooLoan loan, std::vector<C10dWork> parts,
           std::function<void()> finish = {})
      : waits_(std::move(waits)),
        loan_(std::move(loan)),
        parts_(std::move(parts)),
        finish_(std::move(finish)) {}

  void wait() override {
    for (const C10dWork& part : parts_) waits_->wait_for_collective(*part);
    loan_.end();
    if (finish_) finish_();
  }
  bool done() const override {
    return std::all_of(parts_.begin(), parts_.end(),
                       [](const C10dWork& part) { return part->isCompleted(); });
  }

 private:
  std::shared_ptr<GlooWaits> waits_;
  GlooLoan loan_;
  std::vector<C10dWork> parts_;
  std::function<void()> finish_;
};

class GlooMessage final : public Work {
 public:
  GlooMessage(std::shared_ptr<GlooWaits> waits, C10dWork message)
      : waits_(std::move(waits)), message_(std::move(message)) {}
  void wait() override {
    waits_->wait_for_message(*message_);
    done_ = true;
  }
  bool done() const override { return done_; }  // Gloo tells only the one who waits

 private:
  std::shared_ptr<GlooWaits> waits_;
  C10dWork message_;
  bool done_ = false;
};

c10d::ReduceOp gloo_op(Op op) {
  if (op == Op::max) return c10d::ReduceOp::MAX;
  if (op == Op::min) return c10d::ReduceOp::MIN;
  return c10d::ReduceOp::SUM;
}

class Gloo final : public Backend {
 public:
  Gloo(const Store& store, GlooDevice device, int rank, int size, GlooOptions given)
      : options_(std::move(given)), store_(store), device_(std::move(device)) {
    const auto options = c10d::ProcessGroupGloo::Options::create(gloo_timeout(options_));
    options->devices = {device_.device};
    const PipeGuard guard;
    const GlooDoor::Open open(*device_.door);
    store.set(here_key(rank), "");
    try {
      sockets_ = c10::make_intrusive<GlooSockets>(store.state().store, rank, size, options);
      meet(rank, size);
    } catch (const std::exception& error) {
      throw_not_connected(rank, size, error.what());
    }
  }

  int rank() const override { return sockets_->getRank(); }
  int size() const override { return sockets_->getSize(); }
  std::string_view name() const override { return "gloo"; }

  std::unique_ptr<Work> start(const Call& call) override;
  std::shared_ptr<Backend> split(const std::vector<int>& ranks, const std::string& name) override;

  // c10d's destructor waits for what is under way; of a group that was given up it would wait out
  // the timeout.
  ~Gloo() override {
    if (!waits_->given_up()) return;
    try {
      start_thread("close connections", [ended = std::move(sockets_)] {}).detach();
    } catch (const Error&) {  // then the timeout is waited out here
    }
  }
  Gloo(const Gloo&) = delete;
  Gloo& operator=(const Gloo&) = delete;

  void abort() override {
    const std::lock_guard lock(mutex_);
    for (const auto& part : parts_) part->abort();
    waits_->give_up();
    sockets_->close();
  }

 private:
  static std::string here_key(int rank) { return fmt::format("here/{}", rank); }
  void meet(int rank, int size) const;
  [[noreturn]] void throw_not_connected(int rank, int size, const std::string& reason) const;
  std::unique_ptr<Work> whole(GlooLoan loan, C10dWork work) const {
    return std::make_unique<GlooWork>(waits_, std::move(loan), std::vector{std::move(work)});
  }
  std::unique_ptr<Work> message(const Call& call);
  std::unique_ptr<Work> all_to_all(const Call& call);
  C10dWork exchange(at::Tensor out, std::vector<int64_t> out_bytes, at::Tensor in,
                    std::vector<int64_t> in_bytes);
  std::unique_ptr<Work> all_reduce(const Call& call);
  std::unique_ptr<Work> reduce_scatter(const Call& call);
  std::unique_ptr<Work> all_gather(const Call& call);
  std::unique_ptr<Work> gather_in_place(const Call& call);
  C10dWork broadcast(const at::Tensor& bytes, int root);

  GlooOptions options_;
  Store store_;
  GlooDevice device_;
  c10::intrusive_ptr<GlooSockets> sockets_;
  std::shared_ptr<GlooWaits> waits_ = std::make_shared<GlooWaits>();
  std::mutex mutex_;
  std::vector<std::shared_ptr<Backend>> parts_;  // end with this one, so that no peer loses data
  std::map<std::string, int> names_;             // how often a split was made before
};

// A rank that goes on, fails and hangs up while others still connect leaves them waiting for ever:
// so nobody goes on before all are connected.
void Gloo::meet(int rank, int size) const {
  store_.set(fmt::format("connected/{}", rank), "");
  std::vector<std::string> all;
  for (int other = 0; other < size; ++other) all.push_back(fmt::format("connected/{}", other));
  store_.state().store->wait(all, gloo_timeout(options_));
}

void Gloo::throw_not_connected(int rank, int size, const std::string& reason) const {
  std::vector<int> missing;
  for (int other = 0; other < size; ++other)
    if (!store_.has(here_key(other))) missing.push_back(other);
  throw CommError(
      {.what = fmt::format(
           "rank {} of {} at {} does not reach all others: {}", rank, size, options_.address,
           missing.empty() ? reason.substr(0, reason.find('\n'))
                           : fmt::format("rank {} did not come", fmt::join(missing, ", "))),
       .why = fmt::format("all ranks connect to each other within {} s", options_.timeout_seconds),
       .fix = missing.empty() ? "check that the hosts reach each other at the addresses given"
                              : "look for what the missing ranks printed"});
}

std::unique_ptr<Work> Gloo::start(const Call& call) {
  const PipeGuard guard;
  const Unobserved by_instruments;
  // c10d notes each call in a recorder of the process, and adds new groups to it without a lock:
  // two threads (ranks of a test, or backward and the step) that start at once would break it.
  static std::mutex recorder;
  const std::lock_guard lock(recorder);
  if (call.kind == Kind::barrier) return whole({}, sockets_->barrier());
  if (call.kind == Kind::all_to_all) return all_to_all(call);
  if (bytes_of(call) == 0) return finished();  // on all ranks alike
  if (call.kind == Kind::all_reduce) return all_reduce(call);
  if (call.kind == Kind::reduce_scatter) return reduce_scatter(call);
  if (call.kind == Kind::all_gather) return all_gather(call);
  if (call.kind == Kind::send || call.kind == Kind::recv) return message(call);
  const GlooLoan loan;
  return whole(loan, broadcast(loan.lend(as_bytes(call.output)), call.peer));
}

std::unique_ptr<Work> Gloo::message(const Call& call) {
  const bool sends = call.kind == Kind::send;
  std::vector<at::Tensor> tensors{as_bytes(sends ? call.input : call.output)};
  return std::make_unique<GlooMessage>(waits_, sends
                                                   ? sockets_->send(tensors, call.peer, call.tag)
                                                   : sockets_->recv(tensors, call.peer, call.tag));
}

std::unique_ptr<Work> Gloo::all_reduce(const Call& call) {
  const GlooLoan loan;
  std::vector<at::Tensor> tensors{loan.lend(call.output)};
  c10d::AllreduceOptions options;
  options.reduceOp = gloo_op(call.op);
  return whole(loan, sockets_->allreduce(tensors, options));
}

C10dWork Gloo::exchange(at::Tensor out, std::vector<int64_t> out_bytes, at::Tensor in,
                        std::vector<int64_t> in_bytes) {
  return sockets_->alltoall_base(out, in, out_bytes, in_bytes);
}

std::unique_ptr<Work> Gloo::all_to_all(const Call& call) {
  const GlooLoan loan;
  return whole(loan, exchange(loan.lend(as_bytes(call.output)),
                              byte_counts(call.output, call.output_counts, size()),
                              loan.lend(as_bytes(call.input)),
                              byte_counts(call.input, call.input_counts, size())));
}

// Every rank gets what the others hold of its share and adds it up itself: the bytes of a ring, and
// a sum that has one order on every run.
std::unique_ptr<Work> Gloo::reduce_scatter(const Call& call) {
  const at::Tensor rows = rank_rows(call.output, size());
  const std::vector<int64_t> mine(static_cast<size_t>(size()),
                                  static_cast<int64_t>(call.output.nbytes()));
  const GlooLoan loan;
  C10dWork moved = exchange(loan.lend(as_bytes(rows)), mine, loan.lend(as_bytes(call.input)),
                            byte_counts(call.input, call.input_counts, size()));
  return std::make_unique<GlooWork>(
      waits_, loan, std::vector{std::move(moved)},
      [rows, out = call.output, op = call.op] { reduce_rows(out, rows, op); });
}

std::unique_ptr<Work> Gloo::all_gather(const Call& call) {
  // c10d gathers into memory of its own and copies from there: large shares go straight instead.
  const bool large = call.output.nbytes() > (1u << 20);
  if (large || !call.output_counts.empty()) return gather_in_place(call);
  const GlooLoan loan;
  at::Tensor out = loan.lend(as_bytes(call.output)), in = loan.lend(as_bytes(call.input));
  return whole(loan, sockets_->_allgather_base(out, in));
}

C10dWork Gloo::broadcast(const at::Tensor& bytes, int root) {
  std::vector<at::Tensor> tensors{bytes};
  c10d::BroadcastOptions options;
  options.rootRank = root;
  return sockets_->broadcast(tensors, options);
}

// Each rank sends its own to all. Gloo has no other gather of shares of several sizes.
std::unique_ptr<Work> Gloo::gather_in_place(const Call& call) {
  std::vector<C10dWork> parts;
  const GlooLoan loan;
  const at::Tensor out = as_bytes(call.output);
  int64_t first = 0;
  int root = 0;
  for (const int64_t bytes : byte_counts(call.output, call.output_counts, size())) {
    const at::Tensor share = out.narrow(0, first, bytes);
    first += bytes;
    if (root == rank() && bytes > 0 && share.data_ptr() != call.input.data_ptr())
      share.copy_(as_bytes(call.input));
    if (bytes > 0) parts.push_back(broadcast(loan.lend(share), root));
    ++root;
  }
  return std::make_unique<GlooWork>(waits_, loan, std::move(parts));
}

std::shared_ptr<Backend> Gloo::split(const std::vector<int>& ranks, const std::string& name) {
  std::string key = fmt::format("{}[{}]", name, fmt::join(ranks, ","));
  const std::lock_guard lock(mutex_);
  key += fmt::format("#{}", names_[key]++);  // the same split again is a new group
  const auto mine = std::find(ranks.begin(), ranks.end(), rank());
  parts_.push_back(std::make_shared<Gloo>(store_.under(key), device_,
                                          static_cast<int>(mine - ranks.begin()),
                                          static_cast<int>(ranks.size()), options_));
  return parts_.back();
}

}  // namespace

std::shared_ptr<Backend> gloo(const Store& store, int rank, int size, GlooOptions options) {
  const PipeGuard guard;
  GlooDevice device;
  device.door = GlooDoor::around(
      [&] { device.device = c10d::ProcessGroupGloo::createDeviceForHostname(options.address); });
  return staged(std::make_shared<Gloo>(store.under("gloo"), std::move(device), rank, size,
                                       std::move(options)));
}

}  // namespace braid::comm
