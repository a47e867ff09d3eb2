// SPDX-License-Identifier: BSD-3-Clause
// Chunks of tokens: while the matmul of one runs, the next one travels. A trip is two nodes of the
// graph, one that starts it and one that waits; autograd runs nodes made later first, so that the
// backward pass starts a chunk's way back, computes with the next one, and then waits.
#include <ATen/core/custom_class.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "braid/core/observe.h"
#include "parallel/tensor_paths.h"

namespace braid::parallel {
namespace {

// Starts to move a tensor; what it returns is valid when `pending` is waited for.
using Start = std::function<at::Tensor(const at::Tensor&, comm::Pending& pending)>;

struct Trip : torch::CustomClassHolder {
  Trip(Start to, Start from) : there(std::move(to)), back(std::move(from)) {}
  Start there, back;
  comm::Pending pending;
  at::Tensor returning;  // the gradient on its way back
};
using TripPtr = c10::intrusive_ptr<Trip>;

Trip& trip_of(torch::autograd::AutogradContext* context) {
  return *static_cast<Trip*>(context->saved_data["trip"].toCapsule().get());
}

struct Depart : torch::autograd::Function<Depart> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const TripPtr& trip) {
    context->saved_data["trip"] = c10::IValue::make_capsule(trip);
    return trip->there(x, trip->pending);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list) {
    Trip& trip = trip_of(context);
    trip.pending.wait();
    return {std::move(trip.returning), at::Tensor()};
  }
};

struct Arrive : torch::autograd::Function<Arrive> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& y,
                            const TripPtr& trip) {
    context->saved_data["trip"] = c10::IValue::make_capsule(trip);
    trip->pending.wait();
    return y.view_as(y);
  }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    Trip& trip = trip_of(context);
    trip.returning = trip.back(grads[0], trip.pending);
    // The gradient travels beside the graph; the graph gets one of the right shape and no memory.
    return {at::zeros({1}, grads[0].options()).expand(grads[0].sizes()), at::Tensor()};
  }
};

at::Tensor tokens_first(const at::Tensor& x) { return x.movedim(1, 0).contiguous(); }

at::Tensor rows_for(const at::Tensor& front, int64_t rows) {
  std::vector<int64_t> sizes = front.sizes().vec();
  sizes[0] = rows;
  return at::empty(sizes, front.options());
}

// All of these take and give tensors with tokens in front.
at::Tensor stays(const at::Tensor& x, comm::Pending&) { return x.view_as(x); }

Start gathers(const comm::Group& group, const comm::Counts& counts) {
  return [=](const at::Tensor& share, comm::Pending& pending) {
    const MemoryScope buffers(MemoryKind::communication);
    const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    const at::Tensor front = share.contiguous(), whole = rows_for(front, rows);
    pending = group.all_gather(whole, front, counts);
    return whole;
  };
}

Start scatters_sum(const comm::Group& group, const comm::Counts& counts) {
  return [=](const at::Tensor& whole, comm::Pending& pending) {
    const MemoryScope buffers(MemoryKind::communication);
    const at::Tensor front = whole.contiguous();
    const at::Tensor share = rows_for(front, counts[static_cast<size_t>(group.rank())]);
    pending = group.reduce_scatter(share, front, comm::Op::sum, counts);
    return share;
  };
}

Start sums(const comm::Group& group) {
  return [=](const at::Tensor& part, comm::Pending& pending) {
    const MemoryScope buffers(MemoryKind::communication);
    const at::Tensor sum = part.clone(at::MemoryFormat::Contiguous);
    pending = group.all_reduce(sum);
    return sum;
  };
}

// Chunk c of all ranks out of [batch, all tokens, ...], tokens in front.
at::Tensor chunk_of_all(const at::Tensor& whole, const TokenChunks& cut, int64_t chunk) {
  std::vector<at::Tensor> pieces;
  int64_t first = 0;
  for (size_t rank = 0; rank < cut.tokens.size(); ++rank) {
    const comm::Counts& own = cut.by_rank[rank];
    const int64_t before = std::accumulate(own.begin(), own.begin() + chunk, int64_t{0});
    const int64_t count = own[static_cast<size_t>(chunk)];
    pieces.push_back(whole.narrow(1, first + before, count).movedim(1, 0));
    first += cut.tokens[rank];
  }
  return pieces.size() == 1 ? pieces[0].contiguous() : at::cat(pieces);
}

// Without sequence all ranks hold all tokens: they are cut as those of one rank.
TokenChunks chunks_for(const SplitAxis& axis, const comm::Counts& shares, int64_t all) {
  return {axis.sequence ? shares : comm::Counts{all}, axis.overlap};
}

}  // namespace

TokenChunks::TokenChunks(comm::Counts tokens_of_ranks, int64_t chunks)
    : tokens(std::move(tokens_of_ranks)) {
  const int64_t least = *std::min_element(tokens.begin(), tokens.end());
  const auto parts = static_cast<int>(std::clamp<int64_t>(chunks, 1, std::max<int64_t>(least, 1)));
  for (const int64_t own : tokens) by_rank.push_back(comm::even_shares(own, parts));
}

comm::Counts TokenChunks::of(int64_t chunk) const {
  comm::Counts counts;
  for (const comm::Counts& own : by_rank) counts.push_back(own[static_cast<size_t>(chunk)]);
  return counts;
}

at::Tensor in_token_order(const std::vector<at::Tensor>& chunks, const TokenChunks& cut) {
  std::vector<at::Tensor> pieces;
  comm::Counts reached(chunks.size(), 0);
  for (const comm::Counts& own : cut.by_rank)
    for (size_t c = 0; c < own.size(); ++c) {
      pieces.push_back(chunks[c].narrow(0, reached[c], own[c]).movedim(0, 1));
      reached[c] += own[c];
    }
  return at::cat(pieces, 1);
}

bool runs_in_chunks(const at::Tensor& x, const SplitAxis& axis) {
  return axis.overlap > 1 && axis.group.size() > 1 && x.dim() == 3;
}

std::vector<at::Tensor> chunked_columns(const at::Tensor& x,
                                        const std::vector<SplitWeights>& layers,
                                        const SplitAxis& axis, int64_t tokens) {
  const bool shares = axis.sequence;
  const auto me = static_cast<size_t>(shares ? axis.group.rank() : 0);
  const TokenChunks cut = chunks_for(axis, token_counts(x, axis, tokens), x.size(1));
  std::vector<TripPtr> trips;
  std::vector<at::Tensor> under_way;
  int64_t first = 0;
  const auto depart = [&](int64_t chunk) {
    const comm::Counts counts = cut.of(chunk);
    const at::Tensor own = tokens_first(x.narrow(1, first, counts[me]));
    first += counts[me];
    trips.push_back(
        c10::make_intrusive<Trip>(shares ? gathers(axis.group, counts) : Start(stays),
                                  shares ? scatters_sum(axis.group, counts) : sums(axis.group)));
    under_way.push_back(Depart::apply(own, trips.back()));
  };
  std::vector<std::vector<at::Tensor>> outputs(layers.size());
  depart(0);
  for (int64_t chunk = 0; chunk < cut.count(); ++chunk) {
    if (chunk + 1 < cut.count()) depart(chunk + 1);
    const auto at = static_cast<size_t>(chunk);
    const at::Tensor whole = Arrive::apply(std::exchange(under_way[at], {}), trips[at]);
    for (size_t i = 0; i < layers.size(); ++i)
      outputs[i].push_back(kernels::linear(whole, layers[i].weight, layers[i].bias, axis.later));
  }
  std::vector<at::Tensor> joined;
  for (auto& chunks : outputs) joined.push_back(in_token_order(std::exchange(chunks, {}), cut));
  return joined;
}

at::Tensor chunked_rows(const at::Tensor& x, const at::Tensor& weight, const SplitAxis& axis) {
  const bool shares = axis.sequence;
  const TokenChunks cut =
      chunks_for(axis, comm::even_shares(x.size(1), axis.group.size()), x.size(1));
  std::vector<TripPtr> trips;
  std::vector<at::Tensor> under_way, arrived;
  const auto arrive = [&](size_t chunk) {
    arrived.push_back(Arrive::apply(std::exchange(under_way[chunk], {}), trips[chunk]));
  };
  for (int64_t chunk = 0; chunk < cut.count(); ++chunk) {
    const comm::Counts counts = cut.of(chunk);
    const at::Tensor part = kernels::linear(chunk_of_all(x, cut, chunk), weight, {}, axis.later);
    trips.push_back(
        c10::make_intrusive<Trip>(shares ? scatters_sum(axis.group, counts) : sums(axis.group),
                                  shares ? gathers(axis.group, counts) : Start(stays)));
    under_way.push_back(Depart::apply(part, trips.back()));
    if (chunk > 0) arrive(static_cast<size_t>(chunk) - 1);
  }
  arrive(static_cast<size_t>(cut.count()) - 1);
  return at::cat(arrived).movedim(0, 1);
}

}  // namespace braid::parallel
