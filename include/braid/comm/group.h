// SPDX-License-Identifier: BSD-3-Clause
// Ranks that work together, and what they can do together. A Group is a small value: copy it
// freely.
//
//   comm::Pending sum = world.all_reduce(grad, comm::Op::mean);  // starts; the caller goes on
//   layer_below.backward();
//   sum.wait();                                                  // grad now holds the mean
//
// All ranks of a group make the same calls in the same order. A group of one rank does its work at
// once and talks to nobody.
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/comm/backend.h"

namespace braid::comm {

struct GroupState;
class Note;

// A collective in flight. Owns its tensors. Waits when destroyed; if an exception passes and the
// call does not end by itself within a second, the group is given up, so that the other ranks do
// not hang.
class [[nodiscard]] Pending {
 public:
  Pending();  // nothing under way
  ~Pending();
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;  // waits for what it held
  void wait();                             // throws CommError if the call failed
  bool done() const;                       // wait() would not block (see Work::done)

 private:
  friend class Group;
  struct Flight;
  explicit Pending(std::unique_ptr<Flight> flight);
  std::unique_ptr<Flight> flight_;  // several tensors: a chain of flights
};

class Group {
 public:
  Group();  // one rank alone
  explicit Group(std::shared_ptr<Backend> backend, std::string name = "world");

  int rank() const;  // 0 .. size - 1 within this group
  int size() const;
  const std::string& name() const;
  const std::vector<int>& ranks() const;            // the same ranks as numbered in the world
  const std::shared_ptr<Backend>& backend() const;  // null: one rank alone

  // A group of some of these ranks (numbered as here, and ranked in the order given). Only they
  // call it.
  Group split(const std::vector<int>& ranks, const std::string& name) const;

  // In place. mean divides before it adds: fp16 would overflow after.
  Pending all_reduce(const at::Tensor& tensor, Op op = Op::sum) const;
  // out: this rank's share of the sum. counts: rows of `in` for each rank; empty: equal shares.
  Pending reduce_scatter(const at::Tensor& out, const at::Tensor& in, Op op = Op::sum,
                         const std::vector<int64_t>& counts = {}) const;
  // out: the shares of all ranks one after the other. counts: rows of each; empty: equal shares.
  Pending all_gather(const at::Tensor& out, const at::Tensor& in,
                     const std::vector<int64_t>& counts = {}) const;
  Pending broadcast(const at::Tensor& tensor, int root) const;
  // Share i of `in` goes to rank i; share i of `out` came from rank i.
  Pending all_to_all(const at::Tensor& out, const at::Tensor& in) const;
  Pending all_to_all(const at::Tensor& out, const at::Tensor& in,
                     const std::vector<int64_t>& out_counts,
                     const std::vector<int64_t>& in_counts) const;
  Pending send(const at::Tensor& tensor, int peer, int tag = 0) const;
  Pending recv(const at::Tensor& tensor, int peer, int tag = 0) const;
  Pending barrier() const;

  // Several tensors at once: one message for those of one dtype and device, unpacked in wait().
  // Shares are equal; out[i] belongs to in[i].
  Pending all_reduce(const std::vector<at::Tensor>& tensors, Op op = Op::sum) const;
  Pending reduce_scatter(const std::vector<at::Tensor>& out, const std::vector<at::Tensor>& in,
                         Op op = Op::sum) const;
  Pending all_gather(const std::vector<at::Tensor>& out, const std::vector<at::Tensor>& in) const;
  Pending broadcast(const std::vector<at::Tensor>& tensors, int root) const;

  // What this rank does now, or did last, in this group or one split off it; safe from any thread.
  std::string doing() const;
  // Seconds so far that this rank stood still in wait(), in this group or one split off it: what
  // its own work did not hide.
  double waited_seconds() const;
  const std::shared_ptr<Note>& notes() const;  // the same for comm::Watch
  void abort() const;  // what is under way ends with an error, here and on the peers

  friend bool operator==(const Group&, const Group&) = default;  // the same group, not an equal one

 private:
  explicit Group(std::shared_ptr<GroupState> state);
  Pending start(Call call) const;
  Pending start(const Call& kind, const std::vector<at::Tensor>& out,
                const std::vector<at::Tensor>& in) const;
  std::shared_ptr<GroupState> state_;
};

}  // namespace braid::comm
