// SPDX-License-Identifier: BSD-3-Clause
#include "parallel/context_ring.h"

#include <ATen/core/custom_class.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include "braid/core/observe.h"
#include "parallel/context_block.h"

namespace braid::parallel {
namespace {

// Two tensors that travel as one message.
struct RingPair {
  at::Tensor flat, first, second;
};

// The two as views of one message of which `tokens` tokens belong to the owner.
RingPair ring_pair(at::Tensor flat, const at::Tensor& like_first, const at::Tensor& like_second,
                   int64_t tokens) {
  std::vector<int64_t> a = like_first.sizes().vec(), b = like_second.sizes().vec();
  a[2] = b[2] = tokens;
  const int64_t size = a[0] * a[1] * a[2] * a[3];
  at::Tensor first = flat.narrow(0, 0, size).view(a);
  at::Tensor second = flat.narrow(0, size, flat.numel() - size).view(b);
  return {std::move(flat), std::move(first), std::move(second)};
}

RingPair ring_packed(const at::Tensor& first, const at::Tensor& second) {
  const MemoryScope buffers(MemoryKind::communication);
  return ring_pair(at::cat({first.reshape({-1}), second.reshape({-1})}), first, second,
                   first.size(2));
}

struct RingPlace : torch::CustomClassHolder {
  RingPlace(TokenShare given_share, comm::Group given_context,
            kernels::AttentionOptions given_options)
      : share(std::move(given_share)),
        context(std::move(given_context)),
        options(std::move(given_options)) {}
  TokenShare share;
  comm::Group context;
  kernels::AttentionOptions options;

  int size() const { return context.size(); }
  // Whose keys are here after so many steps.
  int owner(int steps) const { return (context.rank() + size() - steps) % size(); }
  const std::vector<Range>& keys(int steps) const {
    return share.by_rank[static_cast<size_t>(owner(steps))];
  }
  std::vector<AttentionBlock> blocks(int steps) const {
    return seen_blocks(share.mine(), keys(steps), options.causal);
  }
  BlockHow how(int steps) const { return {options, share.tokens, share.mine(), keys(steps)}; }
};

// To the next rank, while that of the rank before comes.
struct RingHop {
  RingPair coming;
  comm::Pending sent, received;
  void wait() {
    sent.wait();
    received.wait();
  }
};

// `given` belongs to the rank that stands `steps` before this one, what comes to the one before it.
RingHop ring_hop(const RingPair& given, const RingPlace& place, int steps) {
  const MemoryScope buffers(MemoryKind::communication);
  const int64_t mine = given.first.size(2), next = tokens_in(place.keys(steps + 1));
  RingHop hop;
  hop.coming = ring_pair(at::empty({given.flat.numel() / mine * next}, given.flat.options()),
                         given.first, given.second, next);
  const int rank = place.context.rank(), size = place.size();
  hop.sent = place.context.send(given.flat, (rank + 1) % size);
  hop.received = place.context.recv(hop.coming.flat, (rank + size - 1) % size);
  return hop;
}

struct Ring : torch::autograd::Function<Ring> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& q,
                            const at::Tensor& k, const at::Tensor& v,
                            const c10::intrusive_ptr<RingPlace>& place) {
    RingPair here = ring_packed(k, v);
    BlockSum sum;
    for (int steps = 0; steps < place->size(); ++steps) {
      RingHop hop;
      if (steps + 1 < place->size()) hop = ring_hop(here, *place, steps);
      const BlockHow how = place->how(steps);
      for (const AttentionBlock& block : place->blocks(steps))
        sum.add(block, q, here.first, here.second, how);
      hop.wait();
      here = std::move(hop.coming);
    }
    const at::Tensor out = sum.out.to(q.scalar_type());
    // Not the result itself: where the saving is broken off, it would hold its own graph.
    context->save_for_backward({q, k, v, out.detach(), sum.lse});
    context->saved_data["place"] = c10::IValue::make_capsule(place);
    return out;
  }

  // Keys and values go round again; the sums of their gradients follow one step behind, from the
  // first rank that is not the owner to the owner, who adds its own part.
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    const auto saved = context->get_saved_variables();
    const at::Tensor &q = saved[0], &k = saved[1], &v = saved[2];
    const auto held = context->saved_data["place"].toCapsule();
    const auto& place = *static_cast<const RingPlace*>(held.get());
    const BlockSaved common = {grads[0], q, saved[3], saved[4]};
    RingPair here = ring_packed(k, v);
    BlockGrads own = {zeros_for_sum(q), zeros_for_sum(k), zeros_for_sum(v)};
    RingHop sums;
    for (int steps = 0; steps < place.size(); ++steps) {
      RingHop hop;
      if (steps + 1 < place.size()) hop = ring_hop(here, place, steps);
      BlockGrads part = own;
      if (steps > 0) {
        part.k = zeros_for_sum(here.first);
        part.v = zeros_for_sum(here.second);
      }
      for (const AttentionBlock& block : place.blocks(steps))
        add_block_grads(part, block, common, here.first, here.second, place.how(steps));
      if (steps > 0) sums = passed_on(part, sums, place, steps);
      hop.wait();
      here = std::move(hop.coming);
    }
    sums.wait();
    own.k.add_(sums.coming.first);
    own.v.add_(sums.coming.second);
    const auto dtype = q.scalar_type();
    return {own.q.to(dtype), own.k.to(dtype), own.v.to(dtype), at::Tensor()};
  }

  // Adds what came for these keys from the ranks before and sends the sum on.
  static RingHop passed_on(const BlockGrads& part, RingHop& before, const RingPlace& place,
                           int steps) {
    RingPair sum = ring_packed(part.k, part.v);
    before.wait();
    if (before.coming.flat.defined()) sum.flat.add_(before.coming.flat);
    return ring_hop(sum, place, steps);
  }
};

}  // namespace

at::Tensor ring_attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                          const TokenShare& share, const comm::Group& context,
                          const kernels::AttentionOptions& options) {
  return Ring::apply(q, k, v, c10::make_intrusive<RingPlace>(share, context, options));
}

}  // namespace braid::parallel
