// SPDX-License-Identifier: BSD-3-Clause
// A ring sends the next keys and values before it computes with those that are here.
#include <ATen/record_function.h>
#include <gtest/gtest.h>

#include "braid/parallel/context.h"
#include "support/drawn.h"

namespace braid::parallel {
namespace {

using Events = std::vector<std::string>;

// Notes when messages start and are waited for.
class NotedWork final : public comm::Work {
 public:
  NotedWork(std::unique_ptr<comm::Work> work, std::string name, Events& events)
      : work_(std::move(work)), name_(std::move(name)), events_(events) {}
  void wait() override {
    events_.push_back("wait " + name_);
    work_->wait();
  }
  bool done() const override { return work_->done(); }

 private:
  std::unique_ptr<comm::Work> work_;
  std::string name_;
  Events& events_;
};

class Noted final : public comm::Backend {
 public:
  Noted(int rank, int size, Events& events) : dry_(comm::dry(rank, size)), events_(events) {}
  std::unique_ptr<comm::Work> start(const comm::Call& call) override {
    const std::string name(comm::to_text(call.kind));
    events_.push_back(name);
    return std::make_unique<NotedWork>(dry_->start(call), name, events_);
  }
  int rank() const override { return dry_->rank(); }
  int size() const override { return dry_->size(); }
  std::string_view name() const override { return "noted"; }
  std::shared_ptr<comm::Backend> split(const std::vector<int>&, const std::string&) override {
    return nullptr;
  }

 private:
  std::shared_ptr<comm::Backend> dry_;
  Events& events_;
};

Events* noted_kernels = nullptr;  // callbacks take no state of their own

std::unique_ptr<at::ObserverContext> note_kernel(const at::RecordFunction& function) {
  const std::string_view name = function.name();
  if (name.find("flash_attention_for_cpu") != name.npos)
    noted_kernels->push_back(name.find("backward") == name.npos ? "attend" : "attend backward");
  return nullptr;
}

class KernelNotes {
 public:
  explicit KernelNotes(Events& events) {
    noted_kernels = &events;
    handle_ = at::addGlobalCallback(
        at::RecordFunctionCallback(&note_kernel).scopes({at::RecordScope::FUNCTION}));
  }
  ~KernelNotes() { at::removeCallback(handle_); }

 private:
  at::CallbackHandle handle_ = 0;
};

TEST(ContextRing, ComputesWhileTheNextKeysTravel) {
  Events events;
  const comm::Group world(std::make_shared<Noted>(0, 3, events));
  const TokenShare share = share_tokens(9, world, ContextMethod::ring, false);
  const at::Tensor x = test::drawn({1, 2, share.count(), 4}, 1, "overlap").requires_grad_();
  const KernelNotes kernels(events);
  const at::Tensor y = context_attention(x, x, x, share, world, {.method = ContextMethod::ring});
  const Events hop = {"send", "recv", "attend", "wait send", "wait recv"};
  Events forward;
  for (int i = 0; i < 2; ++i) forward.insert(forward.end(), hop.begin(), hop.end());
  forward.push_back("attend");
  EXPECT_EQ(events, forward);

  events.clear();
  y.sum().backward();
  const Events backward = {"send",
                           "recv",
                           "attend backward",
                           "wait send",
                           "wait recv",  // own keys
                           "send",
                           "recv",
                           "attend backward",  // the next ones,
                           "send",
                           "recv",
                           "wait send",
                           "wait recv",        // and their gradients go on
                           "attend backward",  // the last ones,
                           "wait send",
                           "wait recv",
                           "send",
                           "recv",  // whose gradients go home
                           "wait send",
                           "wait recv"};
  EXPECT_EQ(events, backward);
}

}  // namespace
}  // namespace braid::parallel
