// SPDX-License-Identifier: BSD-3-Clause
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/record_function.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include "support/ranks_crew.h"

namespace braid::test {
namespace {

thread_local int rank_of_thread = -1;
thread_local int drawing = 0;  // operators of this thread that may draw, one within the other
std::mutex
    culprit_mutex;  // a callback of RecordFunction is a plain function: it reaches only globals
std::string culprit;

// What the watch itself takes is no memory of the rank: instruments do not see it.
class Unseen {
 public:
  Unseen() { c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(nullptr); }
  ~Unseen() { c10::ThreadLocalDebugInfo::_forceCurrentDebugInfo(before_); }
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;

 private:
  std::shared_ptr<c10::ThreadLocalDebugInfo> before_ = c10::ThreadLocalDebugInfo::current();
};

at::Tensor default_state() {
  const Unseen unseen;
  at::Generator generator = at::detail::getDefaultCPUGenerator();
  const std::lock_guard lock(generator.mutex());
  return generator.get_state();
}

struct Before final : at::ObserverContext {
  Before() { ++drawing; }
  ~Before() override { --drawing; }
  at::Tensor state = default_state();
};

// An operator that draws, and was given no generator of the rank's own.
bool may_draw(const at::RecordFunction& record) {
  const std::optional<c10::OperatorName> name = record.operator_name();
  if (!name) return false;
  const auto op = c10::Dispatcher::singleton().findSchema(*name);
  if (!op || !op->hasTag(at::Tag::nondeterministic_seeded)) return false;
  for (const c10::IValue& input : record.inputs())
    if (input.isGenerator() && input.toGenerator() != at::detail::getDefaultCPUGenerator())
      return false;
  return true;
}

std::unique_ptr<at::ObserverContext> before_op(const at::RecordFunction& record) {
  return may_draw(record) ? std::make_unique<Before>() : nullptr;
}

void after_op(const at::RecordFunction& record, at::ObserverContext* context) {
  if (context == nullptr || static_cast<Before*>(context)->state.equal(default_state())) return;
  if (drawing > 1) return;  // the outermost is what the body wrote
  const std::lock_guard lock(culprit_mutex);
  if (culprit.empty()) culprit = "rank " + std::to_string(rank_of_thread) + " in " + record.name();
}

}  // namespace

struct GeneratorWatch::State {
  at::Tensor before = default_state();
  at::CallbackHandle callback = at::INVALID_CALLBACK_HANDLE;
};

GeneratorWatch::GeneratorWatch() : state_(std::make_unique<State>()) {
  {
    const std::lock_guard lock(culprit_mutex);
    culprit.clear();
  }
  state_->callback = at::addGlobalCallback(at::RecordFunctionCallback(before_op, after_op)
                                               .needsInputs(true)
                                               .scopes({at::RecordScope::FUNCTION}));
}

GeneratorWatch::~GeneratorWatch() { at::removeCallback(state_->callback); }

void GeneratorWatch::this_thread_is(int rank) { rank_of_thread = rank; }

std::string GeneratorWatch::complaint() const {
  if (state_->before.equal(default_state())) return "";
  const std::lock_guard lock(culprit_mutex);
  return "the default random generator was used by " +
         (culprit.empty() ? "an operator that torch does not mark as random" : culprit) +
         ": all ranks share it, so their numbers depend on who comes first. "
         "Draw from test::Rank::generator or by key (core/rng.h)";
}

}  // namespace braid::test
