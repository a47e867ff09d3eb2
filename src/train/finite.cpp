// SPDX-License-Identifier: BSD-3-Clause
#include "train/finite.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/isfinite.h>
#include <ATen/record_function.h>
#include <fmt/format.h>

#include <cmath>
#include <unordered_map>

namespace braid::train {
namespace {

bool all_finite(const at::Tensor& tensor) {
  if (!tensor.defined() || !tensor.is_floating_point() || tensor.numel() == 0) return true;
  return at::isfinite(tensor.detach()).all().item<bool>();
}

// Watches the operators of a pass: the last parameter that one took, and the first result that is
// not finite.
struct Watch {
  std::unordered_map<const void*, std::string> parameters;  // by tensor: ZeRO has many in a storage
  std::string last_parameter;
  std::string found;
  bool busy = false;  // the check itself runs operators

  void note_inputs(const at::RecordFunction& function) {
    for (const c10::IValue& value : function.inputs()) {
      if (!value.isTensor()) continue;
      const auto known = parameters.find(value.toTensor().unsafeGetTensorImpl());
      if (known != parameters.end()) last_parameter = known->second;
    }
  }

  void check_outputs(const at::RecordFunction& function) {
    for (const c10::IValue& value : function.outputs()) {
      if (!value.isTensor() || all_finite(value.toTensor())) continue;
      found = fmt::format("the output of {}{}", function.name(),
                          last_parameter.empty() ? "" : ", at or after " + last_parameter);
      return;
    }
  }
};

thread_local Watch* active_watch = nullptr;  // the observer's callbacks take no argument of ours

std::unique_ptr<at::ObserverContext> before_operator(const at::RecordFunction& function) {
  if (active_watch != nullptr && !active_watch->busy) active_watch->note_inputs(function);
  return nullptr;
}

void after_operator(const at::RecordFunction& function, at::ObserverContext*) {
  Watch* watch = active_watch;
  // Fresh memory holds anything: only what an operator computed counts.
  if (watch == nullptr || watch->busy || !watch->found.empty() ||
      std::string_view(function.name()).starts_with("aten::empty"))
    return;
  watch->busy = true;
  watch->check_outputs(function);
  watch->busy = false;
}

// The observer stands as long as this object, also if the pass throws.
class Observed {
 public:
  explicit Observed(Watch& watch)
      : handle_(
            at::addThreadLocalCallback(at::RecordFunctionCallback(before_operator, after_operator)
                                           .needsInputs(true)
                                           .needsOutputs(true)
                                           .scopes({at::RecordScope::FUNCTION}))) {
    active_watch = &watch;
  }
  ~Observed() {
    active_watch = nullptr;
    at::removeCallback(handle_);
  }
  Observed(const Observed&) = delete;
  Observed& operator=(const Observed&) = delete;

 private:
  at::CallbackHandle handle_;
};

std::string watch_forward(nn::Model& model, const data::Batch& batch, const Forward& forward) {
  Watch watch;
  for (const Param& param : model.params())
    watch.parameters[param.tensor.unsafeGetTensorImpl()] = param.name;
  const at::NoGradGuard no_grad;
  const Observed observed(watch);
  forward(batch.input);
  return watch.found;
}

}  // namespace

const char* bad_value(double loss) { return std::isnan(loss) ? "nan" : loss > 0 ? "inf" : "-inf"; }

std::string first_not_finite(nn::Model& model, const std::vector<Param>& params,
                             const data::Batch& batch, const Forward& forward) {
  std::string activation = watch_forward(model, batch, forward);
  for (const Param& param : params)
    if (!all_finite(param.tensor)) return "parameter " + param.name;
  if (!all_finite(batch.input)) return "the input batch";
  if (!all_finite(batch.target)) return "the target batch";
  return activation;
}

}  // namespace braid::train
