// SPDX-License-Identifier: BSD-3-Clause
// Stage 3: weights of a block are there while it runs, forward and backward.
#include <ATen/core/grad_mode.h>
#include <c10/util/ScopeExit.h>
#include <fmt/format.h>

#include <utility>

#include "braid/core/error.h"
#include "parallel/zero_gate.h"
#include "parallel/zero_state.h"

namespace braid::parallel {
namespace {

// A graph may outlive the Zero that its weights belong to.
template <class State>
std::shared_ptr<State> alive(const std::weak_ptr<State>& weak) {
  if (std::shared_ptr<State> state = weak.lock()) return state;
  throw InternalError({.what = "a backward pass through blocks of a Zero that is gone",
                       .why = "their weights were given back with it",
                       .fix = "keep the Zero until the last backward pass has run"});
}

}  // namespace

at::Tensor Zero::State::run_root(const at::Tensor& input, const BlockForward& forward) {
  order.begin();
  const auto ended = c10::make_scope_exit([&, outer = std::exchange(in_root, true)] {
    in_root = outer;
    order.end();
  });
  if (resident) return forward(input);
  if (at::GradMode::is_enabled())
    for (ZeroBlock& block : blocks) block.runs = std::make_shared<int>(0);
  gated_before.reset();
  guess(std::nullopt);
  start(root);
  guess(order.first());
  gather(root);
  const at::Tensor output = between_gates(root, input, forward);
  guess(std::nullopt);
  if (!at::GradMode::is_enabled()) {
    drop_all();
  } else if (!output.requires_grad()) {
    drop(root);
  }
  return output;
}

void Zero::State::refuse_without_root(size_t index) const {
  if (blocks[root].flats.empty()) return;
  throw InternalError(
      {.what = fmt::format("run(\"{}\") outside of run(\"\")", blocks[index].name),
       .why = fmt::format("{} is in no block, and run(\"\") gathers what is in no block",
                          blocks[root].flats.front().members.front().param.name),
       .fix = "put the whole forward pass into run(\"\", input, forward)"});
}

at::Tensor Zero::State::run_block(size_t index, const at::Tensor& input,
                                  const BlockForward& forward) {
  if (!in_root && order.begins_anew(index)) {
    order.end();
    gated_before.reset();
  }
  const std::optional<size_t> after = order.step(index);
  if (resident) return forward(input);
  if (!in_root) {
    refuse_without_root(index);
    blocks[index].runs = std::make_shared<int>(0);
  }
  if (ahead && *ahead != index) guess(std::nullopt);
  gather(index);
  guess(after);
  const at::Tensor output = between_gates(index, input, forward);
  const bool kept = options.keep_gathered && at::GradMode::is_enabled() && output.requires_grad();
  if (!kept && after != index) drop(index);
  return output;
}

// Within a backward pass, for values that it wants: no gradient comes along this run, so it leaves
// everything as it was. What is gathered ahead stays so; what is gathered here goes, also where the
// run ends early.
at::Tensor Zero::State::run_again(size_t index, const at::Tensor& input,
                                  const BlockForward& forward) {
  if (resident) return forward(input);
  const bool there = blocks[index].fresh || blocks[index].entered;
  if (!there) start(index);
  const auto ended = c10::make_scope_exit([&] {
    if (!there) drop(index);
  });
  for (ZeroFlat& flat : blocks[index].flats) finish_gather(flat);
  return forward(input);
}

// The output gate brings the weights back for the backward pass, the input gate gives them up.
at::Tensor Zero::State::between_gates(size_t index, const at::Tensor& input,
                                      const BlockForward& forward) {
  if (!at::GradMode::is_enabled()) return forward(input);
  const std::weak_ptr<State> weak = weak_from_this();
  const std::shared_ptr<int> runs = blocks[index].runs;
  at::Tensor entered = input;
  const bool gate = input.defined() && input.requires_grad();
  if (gate) {
    entered = gated(input, [weak, index, runs] { alive(weak)->leave(index, *runs); });
    ++*runs;
  }
  at::Tensor output = forward(entered);
  if (output.requires_grad()) {
    const auto before = std::exchange(gated_before, index);
    output = gated(output, [weak, index, before] { alive(weak)->enter(index, before); });
  } else if (gate) {
    --*runs;
  }
  return output;
}

// Gathers ahead for a run to come. One block at a time: with the one that runs, two are there.
void Zero::State::guess(std::optional<size_t> coming) {
  if (ahead && ahead != coming) drop(*ahead);
  ahead = coming;
  if (coming) start(*coming);
}

void Zero::State::start(size_t index) {
  ZeroBlock& block = blocks[index];
  if (block.fresh) return;
  for (ZeroFlat& flat : block.flats) start_gather(flat, shard);
  block.fresh = true;
}

void Zero::State::gather(size_t index) {
  start(index);
  for (ZeroFlat& flat : blocks[index].flats) finish_gather(flat);
  if (ahead == index) ahead.reset();
}

void Zero::State::drop(size_t index) {
  if (resident) return;
  for (ZeroFlat& flat : blocks[index].flats) release_whole(flat);
  blocks[index].fresh = blocks[index].entered = false;
}

void Zero::State::drop_all() {
  ahead.reset();
  for (size_t i = 0; i < blocks.size(); ++i) drop(i);
}

// Backward comes to a block.
void Zero::State::enter(size_t index, std::optional<size_t> before) {
  if (!in_root) {
    order.end();
    gated_before.reset();
  }
  if (ahead && *ahead != index) guess(std::nullopt);
  gather(index);
  blocks[index].fresh = false;  // from now on its memory goes when its gradients are taken
  blocks[index].entered = true;
  if (before != index) guess(before);
}

// Backward has left a block: gradients of it that did not come do not come any more.
void Zero::State::leave(size_t index, int& runs) {
  if (--runs > 0) return;
  if (!options.late) {
    blocks[index].closed = blocks[index].trained > 0;
    launch_ready();
  }
  give_up(index);
}

// Not if a later forward pass has gathered it again.
void Zero::State::give_up(size_t index) {
  if (!blocks[index].fresh) drop(index);
}

}  // namespace braid::parallel
