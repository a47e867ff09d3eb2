// SPDX-License-Identifier: BSD-3-Clause
#include "braid/core/region.h"

#include <ATen/record_function.h>

#include <string>
#include <utility>

namespace braid {

struct Region::State {
  State(at::StepCallbacks&& callbacks, std::string_view text)
      : name(text), record(std::move(callbacks)) {
    record.before(std::string_view(name));
  }
  std::string name;
  at::RecordFunction record;
};

Region::Region(std::string_view name) {
  auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::USER_SCOPE);
  if (callbacks) state_ = std::make_unique<State>(std::move(*callbacks), name);
}

Region::~Region() = default;

}  // namespace braid
