// SPDX-License-Identifier: BSD-3-Clause
// What a stash holds of one piece of memory, and the way of it to the host and back.
//
// Device memory is given back and taken at fixed places of the program, never when an event happens
// to be done: the n-th value leaves the device at the put of the (n + window)-th. So a dry run
// counts what a real one takes.
#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <tuple>
#include <vector>

#include <c10/core/Storage.h>
#include <c10/util/intrusive_ptr.h>

#include "braid/core/accelerator.h"
#include "braid/memory/stash.h"
#include "memory/saved.h"
#include "memory/stash_code.h"

namespace braid::memory {

using SameKey = std::tuple<const void*, int64_t, int, int64_t, int64_t, std::vector<int64_t>,
                           std::vector<int64_t>>;

struct StashState;

struct Entry {
  explicit Entry(std::shared_ptr<StashState> owner) : stash(std::move(owner)) {}
  ~Entry();
  Entry(const Entry&) = delete;
  Entry& operator=(const Entry&) = delete;

  bool here() const { return !device.empty(); }
  void arrive();  // the current stream waits for copies under way

  std::shared_ptr<StashState> stash;
  SameKey key;
  std::optional<c10::weak_intrusive_ptr<c10::StorageImpl>> storage;  // its address stays its own
  int64_t order = 0;
  Code code = Code::as_is;
  c10::ScalarType dtype = c10::kFloat;
  int64_t elements = 0;
  std::vector<int64_t> strides;  // of a value that had gaps, without them; empty: it had none
  std::vector<Kept> device, host;
  std::vector<std::unique_ptr<braid::Moment>> under_way;
};

// Owned by the stash and by each value in it: nodes of a graph may go last.
struct StashState : std::enable_shared_from_this<StashState> {
  explicit StashState(StashOptions given) : options(std::move(given)) {}

  bool takes(const at::Tensor& value, Code code) const;
  std::shared_ptr<Entry> put(const at::Tensor& value, Code code);
  at::Tensor take(Entry& entry);  // [elements]
  void forget(Entry& entry);

  const StashOptions options;
  mutable std::recursive_mutex mutex;  // nodes are freed on the engine's threads, too
  Traffic traffic;

 private:
  std::shared_ptr<Entry> fresh(const at::Tensor& value, Code code, SameKey key);
  void send(Entry& entry);
  void bring(Entry& entry);
  void copy(Entry& entry, const at::Tensor& to, const at::Tensor& from);

  int64_t puts_ = 0;
  std::map<SameKey, std::weak_ptr<Entry>> known_;
  std::map<int64_t, Entry*> waiting_;  // that have a copy on the host, as they were put
  std::deque<Entry*> leaving_;         // of these, the last ones: still on the device
};

}  // namespace braid::memory
