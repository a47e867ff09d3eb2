// SPDX-License-Identifier: BSD-3-Clause
#include "comm/staged.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>

#include <utility>

#include "braid/core/accelerator.h"
#include "braid/core/error.h"

namespace braid::comm {
namespace {

class StagedWork final : public Work {
 public:
  StagedWork(std::unique_ptr<Work> inner, Call host, at::Tensor target)
      : host_(std::move(host)), target_(std::move(target)), inner_(std::move(inner)) {}
  void wait() override {
    inner_->wait();
    if (target_.defined()) target_.copy_(host_.output, /*non_blocking=*/true);
  }
  bool done() const override { return inner_->done(); }

 private:
  Call host_;
  at::Tensor target_;  // on the GPU; undefined: nothing to bring back
  std::unique_ptr<Work> inner_;
};

at::Tensor staged_twin(const at::Tensor& tensor) {
  return accelerator()->pinned_like(at::empty(tensor.sizes(), tensor.options().device(at::kCPU)));
}

class Staged final : public Backend {
 public:
  explicit Staged(std::shared_ptr<Backend> inner) : inner_(std::move(inner)) {}
  int rank() const override { return inner_->rank(); }
  int size() const override { return inner_->size(); }
  std::string_view name() const override { return inner_->name(); }
  void abort() override { inner_->abort(); }
  std::shared_ptr<Backend> split(const std::vector<int>& ranks, const std::string& name) override {
    return staged(inner_->split(ranks, name));
  }

  std::unique_ptr<Work> start(const Call& call) override {
    const at::Tensor& tensor = call.input.defined() ? call.input : call.output;
    if (!tensor.defined() || tensor.is_cpu()) return inner_->start(call);
    if (!tensor.is_cuda() || accelerator() == nullptr) refuse(call, tensor);
    Call host = call;
    if (call.input.defined()) {
      host.input = staged_twin(call.input);
      host.input.copy_(call.input);  // the host waits: the network reads it next
    }
    const bool in_place = call.output.defined() && call.output.is_same(call.input);
    if (call.output.defined()) host.output = in_place ? host.input : staged_twin(call.output);
    std::unique_ptr<Work> work = inner_->start(host);
    return std::make_unique<StagedWork>(std::move(work), std::move(host), call.output);
  }

 private:
  [[noreturn]] void refuse(const Call& call, const at::Tensor& tensor) const {
    throw CommError({.what = fmt::format("{} of a tensor on {} over {}", to_text(call),
                                         tensor.device().str(), name()),
                     .why = "it moves CPU memory, and GPU memory only through a copy",
                     .fix = "move the tensor to the CPU, or use a group of another backend"});
  }
  std::shared_ptr<Backend> inner_;
};

}  // namespace

std::shared_ptr<Backend> staged(std::shared_ptr<Backend> inner) {
  return std::make_shared<Staged>(std::move(inner));
}

}  // namespace braid::comm
