// SPDX-License-Identifier: BSD-3-Clause
#include "comm/flight.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <chrono>
#include <exception>
#include <thread>

#include "braid/core/error.h"
#include "braid/core/observe.h"
#include "braid/core/region.h"

namespace braid::comm {
namespace {

bool in_place(Kind kind) { return kind == Kind::all_reduce || kind == Kind::broadcast; }

// Replaces tensors with holes by contiguous ones. Gives the output to be filled later, if it was
// replaced.
at::Tensor make_contiguous(Call& call) {
  at::Tensor target;
  const bool holes = call.output.defined() && !call.output.is_contiguous();
  if (holes) {
    target = call.output;
    call.output =
        in_place(call.kind) ? target.contiguous() : at::empty(target.sizes(), target.options());
  }
  if (in_place(call.kind)) {
    call.input = call.output;
  } else if (call.input.defined()) {
    call.input = call.input.contiguous();
  }
  return target;
}

// Before the sum: the sum of n values of fp16 may be infinite where their mean is not.
void divide_for_mean(Call& call, bool own_input, int size) {
  if (call.op != Op::mean) return;
  if (own_input || in_place(call.kind)) {
    call.input.div_(size);
  } else {
    call.input = call.input.div(size);
  }
}

// Values come from outside of autograd: saved copies of the old ones must be seen as changed.
void bump_version(const at::Tensor& tensor) {
  if (tensor.defined() && !tensor.is_inference()) tensor.unsafeGetTensorImpl()->bump_version();
}

std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

// Runs `body` and turns what a network library throws into a CommError that names the call.
template <class Body>
void with_reasons(GroupState& group, const std::string& text, int64_t entry, Body body) {
  std::string reason;
  try {
    return body();
  } catch (const Error& error) {
    group.fail(error.complaint().what);
    group.note->fail(entry, error.complaint().what, /*told=*/true);
    throw;
  } catch (const c10::Error& error) {
    reason = first_line(error.what_without_backtrace());
  } catch (const std::exception& error) {
    reason = first_line(error.what());
  }
  Complaint complaint = {
      .what = fmt::format("{} failed on rank {} of {}: {}", text, group.rank, group.size, reason),
      .why = "a rank that ends, or a network that loses it, breaks the calls of all its groups",
      .fix = "look for the rank that failed first: its error is the cause"};
  group.fail(complaint.what);
  group.note->fail(entry, reason, /*told=*/false);
  throw CommError(std::move(complaint));
}

// Collectives are numbered alike on all ranks; messages are not, each rank has others.
CallNote note_of(GroupState& group, const Call& call) {
  const bool message = call.kind == Kind::send || call.kind == Kind::recv;
  CallNote note{.group = group.known};
  if (message) {
    note.peer = group.ranks[static_cast<size_t>(call.peer)];
  } else {
    note.number = group.calls.fetch_add(1);
  }
  note.text =
      fmt::format("{} of group {} ({} {})", to_text(call), group.name, message ? "message" : "call",
                  message ? group.messages.fetch_add(1) : note.number);
  return note;
}

}  // namespace

void GroupState::fail(const std::string& sentence) {
  const std::lock_guard lock(mutex_);
  if (failure_.empty()) failure_ = sentence;
}

std::string GroupState::failure() const {
  const std::lock_guard lock(mutex_);
  return failure_;
}

std::unique_ptr<Pending::Flight> Pending::Flight::start(std::shared_ptr<GroupState> group,
                                                        Call call, Unpack unpack) {
  if (const std::string failure = group->failure(); !failure.empty())
    throw CommError(
        {.what = fmt::format("{} in group {}: {}", to_text(call.kind), group->name, failure),
         .why = "a group does not go on after a call of it failed",
         .fix = "end the job and start it again from its last checkpoint"});
  auto flight = std::make_unique<Flight>();
  flight->note = note_of(*group, call);
  flight->exceptions = std::uncaught_exceptions();
  const MemoryScope buffers(MemoryKind::communication);
  const at::Tensor given = call.input;
  flight->target = make_contiguous(call);
  divide_for_mean(call, unpack || !call.input.is_same(given), group->size);
  bump_version(call.output);
  const int64_t entry = group->note->begin(flight->note);
  with_reasons(*group, flight->note.text, entry,
               [&] { flight->work = group->backend->start(call); });
  group->note->begun(entry);
  flight->unpack = std::move(unpack);
  flight->call = std::move(call);
  flight->group = std::move(group);
  return flight;
}

void Pending::Flight::wait() {
  const at::NoGradGuard no_grad;
  const Region here(regions::communication), what(to_text(call.kind));
  const MemoryScope buffers(MemoryKind::communication);
  const int64_t entry = group->note->wait(note);
  with_reasons(*group, note.text, entry, [&] { work->wait(); });
  if (target.defined()) target.copy_(call.output);
  if (unpack) unpack(call.output);
  group->note->end(entry);
}

void Pending::Flight::give_up_if_stuck() const {
  using namespace std::chrono_literals;
  for (int i = 0; i < 100 && !work->done(); ++i) std::this_thread::sleep_for(10ms);
  if (!work->done()) return group->backend->abort();
  if (next != nullptr) next->give_up_if_stuck();
}

Pending::Pending() = default;
Pending::Pending(std::unique_ptr<Flight> flight) : flight_(std::move(flight)) {}
Pending::Pending(Pending&&) noexcept = default;

Pending& Pending::operator=(Pending&& other) noexcept {
  Pending before(std::move(*this));  // waits at the end of this scope
  flight_ = std::move(other.flight_);
  return *this;
}

Pending::~Pending() {
  if (flight_ == nullptr) return;
  try {
    if (std::uncaught_exceptions() > flight_->exceptions) flight_->give_up_if_stuck();
    wait();
  } catch (...) {
    // The group keeps the failure: its next call throws it. A destructor cannot.
  }
}

void Pending::wait() {
  std::exception_ptr failed;  // the first; the others of the chain are waited for all the same
  while (flight_ != nullptr) {
    std::unique_ptr<Flight> flight = std::move(flight_);  // a failed call is over, too
    flight_ = std::move(flight->next);
    try {
      flight->wait();
    } catch (...) {
      if (!failed) failed = std::current_exception();
    }
  }
  if (failed) std::rethrow_exception(failed);
}

bool Pending::done() const {
  for (const Flight* flight = flight_.get(); flight != nullptr; flight = flight->next.get())
    if (!flight->work->done()) return false;
  return true;
}

}  // namespace braid::comm
