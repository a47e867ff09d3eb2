// SPDX-License-Identifier: BSD-3-Clause
// Gradients of a block travel when the last one has come, in one order on all ranks.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>

#include <fmt/format.h>

#include <algorithm>

#include "braid/core/dry.h"
#include "braid/core/error.h"
#include "braid/core/observe.h"
#include "parallel/alike.h"
#include "parallel/bare_view.h"
#include "parallel/host_copy.h"
#include "parallel/zero_state.h"

namespace braid::parallel {
namespace {

InternalError second_pass() {
  return InternalError({.what = "a second backward pass before Zero::finish()",
                        .why = "the sum of the first one's gradients is on its way already",
                        .fix = "call hold(true) before all but the last backward pass of a step"});
}

// Moves a gradient into its flat and leaves that part of the flat behind, to which later passes
// add.
void take_grad(ZeroFlat& flat, ZeroMember& member) {
  take_grads_memory(flat);
  at::Tensor& grad = member.param.tensor.mutable_grad();
  if (!grad.defined()) return;  // it went with the round that was closed just now
  if (grad.is_alias_of(member.grad)) return;
  if (member.filled) {
    member.grad.add_(grad);
  } else {
    member.grad.copy_(grad);
  }
  grad = member.grad;
  member.filled = true;
}

bool has_grads(const ZeroFlat& flat) {
  return flat.trained &&
         std::any_of(flat.members.begin(), flat.members.end(), [](const ZeroMember& member) {
           return member.filled || member.param.tensor.grad().defined();
         });
}

bool is_sent(const ZeroFlat& flat) { return flat.rounds > 0 || flat.sent.defined(); }

void let_go(ZeroMember& member) {
  member.param.tensor.mutable_grad().reset();
  member.grad.reset();
}

}  // namespace

// Blocks as backward meets them; the root last: by then all weights were gathered, so sums and
// gathers come in one order, also where ranks use different parameters.
void Zero::State::order_launches() {
  std::vector<size_t> all;
  const auto add = [&](size_t index) {
    if (blocks[index].trained > 0 && index != root &&
        std::find(all.begin(), all.end(), index) == all.end())
      all.push_back(index);
  };
  for (const size_t index : order.last()) add(index);
  std::reverse(all.begin(), all.end());
  for (size_t index = blocks.size(); index-- > 0;) add(index);
  if (blocks[root].trained > 0) all.push_back(root);
  launch_order = std::move(all);
}

void Zero::State::arrived(size_t index, ZeroFlat& flat, ZeroMember& member) {
  const at::NoGradGuard no_grad;
  if (options.late) open = true;
  if (options.late || (options.stage == 1 && holding)) return take_grad(flat, member);
  if (member.ready || blocks[index].launched) {
    if (options.stage == 1) throw second_pass();
    close_round();  // hold() was not called between the passes
  }
  take_grad(flat, member);
  member.ready = true;
  open = true;
  if (--blocks[index].missing == 0) launch_ready();
}

void Zero::State::launch_ready() {
  while (next < launch_order.size()) {
    const ZeroBlock& block = blocks[launch_order[next]];
    if (block.missing > 0 && !block.closed) return;
    launch(launch_order[next++]);
  }
}

void Zero::State::launch(size_t index) {
  // Whole gradients of two blocks at most, and in stage 1 the sums over replicas begin early.
  if (flying && (options.stage > 1 || sums_replicas())) land(*flying);
  for (ZeroFlat& flat : blocks[index].flats)
    if (flat.trained) launch(flat);
  flying = index;
  open = begun = blocks[index].launched = true;
  if (*blocks[index].runs == 0) give_up(index);  // no input gate says that backward has left it
}

void Zero::State::launch(ZeroFlat& flat) {
  if (flat.summed) throw second_pass();
  take_grads_memory(flat);
  for (ZeroMember& member : flat.members) {
    // One that did not come in a backward pass may have been put there by the caller.
    take_grad(flat, member);
    if (!member.filled) member.grad.zero_();
  }
  flat.sent = wire_of(flat);
  take_sum_memory(flat, /*copied=*/!flat.sent.is_alias_of(flat.grads));
  if (options.stage > 1) {
    for (ZeroMember& member : flat.members) let_go(member);
    flat.grads.reset();  // flat.sent may still hold it
  }
  flat.last = !holding && !options.late;
  flat.sum = shard.reduce_scatter(flat.got, flat.sent, comm::Op::sum);
}

void Zero::State::take_sum_memory(ZeroFlat& flat, bool copied) const {
  if (leaves_early(flat)) {
    flat.got = at::empty({flat.share}, flat.sent.options());
    mark(flat.got, MemoryKind::gradient);
    return;
  }
  if (options.stage == 1 && !copied) {
    flat.shard_grads = flat.grads.narrow(0, flat.begin, flat.share);
  } else if (!flat.shard_grads.defined()) {
    flat.shard_grads = at::empty({flat.share}, flat.sent.options());
    mark(flat.shard_grads, MemoryKind::gradient);
  }
  flat.got = flat.shard_grads;
  if (flat.rounds == 0) return;
  const MemoryScope buffers(MemoryKind::communication);
  flat.got = at::empty({flat.share}, flat.sent.options());
}

// The division stands before the sum, which fp16 would not survive, and in the wider dtype.
at::Tensor Zero::State::wire_of(ZeroFlat& flat) const {
  const int parts = options.average ? shard.size() * flat.replicas.size() : 1;
  const c10::ScalarType own = flat.grads.scalar_type(), wire = options.reduce.value_or(own);
  const bool wider = c10::elementSize(wire) > c10::elementSize(own);
  if (parts > 1 && !wider) flat.grads.div_(parts);
  if (wire == own) return flat.grads;
  const MemoryScope buffers(MemoryKind::communication);
  at::Tensor sent = flat.grads.to(wire);
  if (parts > 1 && wider) sent.div_(parts);
  return sent;
}

void Zero::State::land(size_t index) {
  for (ZeroFlat& flat : blocks[index].flats)
    if (flat.sent.defined()) land(flat);
  if (flying == index) flying.reset();
}

void Zero::State::land(ZeroFlat& flat) {
  flat.sum.wait();
  if (leaves_early(flat)) {
    bring_to_host(flat, flat.got);
  } else if (!flat.got.is_same(flat.shard_grads)) {
    flat.shard_grads.add_(flat.got);
  }
  ++flat.rounds;
  flat.got.reset();
  flat.sent.reset();
  if (!flat.last || flat.replicas.size() == 1) return;
  flat.sum = flat.replicas.all_reduce(flat.shard_grads, comm::Op::sum);
  flat.summed = true;
}

void Zero::State::bring_to_host(ZeroFlat& flat, const at::Tensor& grads) {
  if (!flat.host_grads.defined()) {
    flat.host_grads = host_memory(flat.share, grads.scalar_type(), flat.whole);
    mark(flat.host_grads, MemoryKind::gradient);
  }
  flat.traffic.to_host += static_cast<int64_t>(grads.nbytes());
  if (leaves_early(flat) && flat.rounds > 0)
    landing.add(flat.host_grads, grads);
  else
    landing.bring(flat.host_grads, grads);
}

void Zero::State::begin_round() {
  next = 0;
  open = false;
  for (ZeroBlock& block : blocks) {
    block.missing = block.trained;
    block.closed = block.launched = false;
    for (ZeroFlat& flat : block.flats)
      for (ZeroMember& member : flat.members) member.ready = member.filled = false;
  }
}

// What did not come has its part in the sum nevertheless: zeros.
void Zero::State::close_round() {
  for (ZeroBlock& block : blocks) block.closed = true;
  launch_ready();
  begin_round();
}

// Blocks of which nothing came stay out of it; at the end of a step each was sent once.
void Zero::State::close_late_round(bool end) {
  for (const size_t index : launch_order) {
    bool wanted = false;
    for (const ZeroFlat& flat : blocks[index].flats)
      wanted = wanted || has_grads(flat) || (end && flat.trained && !is_sent(flat));
    if (wanted) launch(index);
  }
  begin_round();
}

// Late ones of stage 1 wait for finish().
void Zero::State::hold(bool on) {
  if (options.stage > 1 && open) options.late ? close_late_round(/*end=*/false) : close_round();
  if (options.stage > 1 && flying) land(*flying);  // else its gradients stay through a forward pass
  holding = on;
}

// The pieces of this rank change between finish() and publish(), and at no other time.
void Zero::State::expect_no_update() const {
  const bool late = stepped && !updated && values_changed();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (!late && version_of(pieces[i].tensor) == versions[i]) continue;
    throw InternalError(
        {.what = fmt::format(
             "{} of Zero::params() was changed {}", pieces[i].name,
             stepped ? "after finish(), and publish() was not called" : "before finish()"),
         .why = stepped ? "the model still computes with the weights from before the update"
                        : "the optimizer used the gradients of the step before",
         .fix = "call in each step: backward(), zero.finish(), optimizer.step(), zero.publish(); "
                "call publish() after values were loaded, too"});
  }
}

// What the first steps show: by values, which every update changes.
bool Zero::State::values_changed() const {
  for (size_t i = 0; i < prints.size(); ++i)
    if (print_of(pieces[i].tensor) != prints[i]) return true;
  return false;
}

// Until the first update was seen: an optimizer over other tensors never makes one.
void Zero::State::expect_update() {
  if (!stepped || updated) return;
  bool trained = false;
  for (size_t i = 0; i < pieces.size(); ++i) {
    trained = trained || (pieces[i].tensor.requires_grad() && has_data(pieces[i].tensor));
    updated = updated || version_of(pieces[i].tensor) != versions[i];
  }
  updated = updated || values_changed();
  if (updated || !trained) return prints.clear();
  throw InternalError(
      {.what = "Zero::publish(): no piece was updated since finish()",
       .why = "Zero trains the tensors of params(), which are pieces of the weights; gradients of "
              "the module's own parameters are gone after finish(), so that an optimizer over "
              "net.parameters() changes nothing",
       .fix =
           "give the optimizer zero.params() and call its step() between finish() and publish(); "
           "leave publish() out where a step is skipped"});
}

void Zero::State::note_versions() {
  versions.clear();
  for (const Param& piece : pieces) versions.push_back(version_of(piece.tensor));
}

void Zero::State::note_values() {
  prints.clear();
  for (const Param& piece : pieces) prints.push_back(print_of(piece.tensor));
}

void Zero::State::finish() {
  const at::NoGradGuard no_grad;
  expect_no_update();
  BufferShare over_shard(of_shard, options.buffers);
  if (options.late)
    close_late_round(/*end=*/true);
  else if (open || !begun)
    close_round();
  for (const size_t index : launch_order) land(index);
  for (const size_t index : launch_order)
    for (ZeroFlat& flat : blocks[index].flats)
      if (flat.trained && flat.replicas.size() > 1 && !flat.summed)
        flat.sum = flat.replicas.all_reduce(flat.shard_grads, comm::Op::sum);
  drop_all();
  over_shard.wait();
  BufferShare(replicas, options.buffers).wait();
  hand_out_grads();
  holding = begun = false;
  stepped = true;
  note_versions();
  if (!updated) note_values();
  order.end();
  order_launches();
}

// On the host: gradients are there, and nothing reads the pieces that an optimizer may change now.
void Zero::State::settle_host() {
  for (ZeroBlock& block : blocks)
    for (ZeroFlat& flat : block.flats) {
      if (!flat.on_host) continue;
      if (flat.trained && !leaves_early(flat)) {
        flat.sum.wait();
        bring_to_host(flat, flat.shard_grads);
        flat.shard_grads.reset();
      }
      if (const auto arrival = std::move(flat.arrival)) arrival->host_wait();
    }
  landing.wait();
}

void Zero::State::hand_out_grads() {
  settle_host();
  auto piece = pieces.begin();
  for (ZeroBlock& block : blocks)
    for (ZeroFlat& flat : block.flats) {
      if (flat.trained) flat.sum.wait();
      const at::Tensor& grads = flat.on_host ? flat.host_grads : flat.shard_grads;
      for (ZeroMember& member : flat.members) {
        if (flat.trained && options.stage == 1) member.param.tensor.mutable_grad().reset();
        const ZeroSlice slice = slice_of(flat, member);
        if (slice.count == 0) continue;
        const Param& own = *piece++;
        if (flat.trained)
          own.tensor.mutable_grad() = bare_view(grads, own.tensor.sizes(), slice.begin);
      }
      flat.rounds = 0;
      flat.summed = false;
      if (options.give_grads) give_up_grads(flat);
    }
}

// .grad() of the pieces alone holds them from now on.
void Zero::State::give_up_grads(ZeroFlat& flat) {
  flat.shard_grads.reset();
  flat.grads.reset();
  for (ZeroMember& member : flat.members) member.grad.reset();
}

}  // namespace braid::parallel
