// SPDX-License-Identifier: BSD-3-Clause
// Column-split layers that keep the share of their input and gather it again in the backward pass,
// while the gradient of the input is computed.
#include <ATen/SequenceNumber.h>
#include <ATen/core/custom_class.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/linear.h>
#include <torch/csrc/autograd/custom_function.h>

#include <numeric>
#include <optional>

#include "braid/core/observe.h"
#include "parallel/tensor_paths.h"

namespace braid::parallel {
namespace {

using torch::autograd::variable_list;

at::Tensor rows_of(const at::Tensor& x) { return x.reshape({-1, x.size(-1)}); }

// A gather under way of x [batch, tokens of this rank, width].
class Gathering {
 public:
  Gathering(const at::Tensor& x, const comm::Group& group, const comm::Counts& counts) {
    const MemoryScope buffers(MemoryKind::communication);
    const at::Tensor front = x.movedim(1, 0).contiguous();
    std::vector<int64_t> sizes = front.sizes().vec();
    sizes[0] = std::accumulate(counts.begin(), counts.end(), int64_t{0});
    whole_ = at::empty(sizes, front.options());
    pending_ = group.all_gather(whole_, front, counts);
  }
  at::Tensor front() {  // tokens in front
    pending_.wait();
    return std::move(whole_);
  }
  at::Tensor take() { return front().movedim(0, 1).contiguous(); }  // [batch, all tokens, width]

 private:
  at::Tensor whole_;
  comm::Pending pending_;
};

struct RegatherJob : torch::CustomClassHolder {
  SplitAxis axis;
  comm::Counts counts;               // tokens of each rank
  std::vector<SplitWeights> layers;  // as given, while the forward pass runs
  std::vector<SplitWeights> places;  // late: the way to their parameters
  std::vector<bool> biased;          // of layers
  bool late = false;                 // gradients of weights are asked for later
  int64_t key = 0;
  uint64_t place = 0;
};
using RegatherJobPtr = c10::intrusive_ptr<RegatherJob>;

std::vector<at::Tensor> in_one(const at::Tensor& x, const RegatherJob& job) {
  const at::Tensor whole = Gathering(x, job.axis.group, job.counts).take();
  std::vector<at::Tensor> outputs;
  for (const SplitWeights& layer : job.layers)
    outputs.push_back(at::linear(whole, layer.weight, layer.bias));
  return outputs;
}

std::vector<at::Tensor> in_chunks(const at::Tensor& x, const RegatherJob& job) {
  const TokenChunks cut(job.counts, job.axis.overlap);
  std::vector<std::vector<at::Tensor>> outputs(job.layers.size());
  int64_t first = 0;
  const auto depart = [&](int64_t chunk) {
    const comm::Counts counts = cut.of(chunk);
    const int64_t own = counts[static_cast<size_t>(job.axis.group.rank())];
    first += own;
    return Gathering(x.narrow(1, first - own, own), job.axis.group, counts);
  };
  std::optional<Gathering> next = depart(0);
  for (int64_t chunk = 0; chunk < cut.count(); ++chunk) {
    Gathering now = *std::exchange(next, std::nullopt);
    if (chunk + 1 < cut.count()) next = depart(chunk + 1);
    const at::Tensor whole = now.front();
    for (size_t i = 0; i < job.layers.size(); ++i)
      outputs[i].push_back(at::linear(whole, job.layers[i].weight, job.layers[i].bias));
  }
  std::vector<at::Tensor> joined;
  for (auto& chunks : outputs) joined.push_back(in_token_order(std::exchange(chunks, {}), cut));
  return joined;
}

// The input of all tokens, for the gradients of several weights: gathered once, when first asked.
class GatheredOnce {
 public:
  GatheredOnce(at::Tensor share, RegatherJobPtr job, size_t uses)
      : share_(std::move(share)), job_(std::move(job)), uses_(uses) {}
  at::Tensor rows() {
    if (!whole_.defined())
      whole_ = rows_of(Gathering(share_, job_->axis.group, job_->counts).take());
    return --uses_ == 0 ? std::move(whole_) : whole_;
  }

 private:
  at::Tensor share_, whole_;
  RegatherJobPtr job_;
  size_t uses_;
};

struct Regather : torch::autograd::Function<Regather> {
  // Tensors: an anchor (so that outputs need gradients where x does not), x, weights and biases.
  static variable_list forward(torch::autograd::AutogradContext* context, const at::Tensor&,
                               const at::Tensor& x, const at::TensorList& given,
                               const RegatherJobPtr& job) {
    context->saved_data["job"] = c10::IValue::make_capsule(job);
    variable_list saved = {x};
    for (const SplitWeights& layer : job->layers) saved.push_back(layer.weight.detach());
    context->save_for_backward(saved);
    context->saved_data["given"] = static_cast<int64_t>(given.size());
    return job->axis.overlap > 1 && x.dim() == 3 ? in_chunks(x, *job) : in_one(x, *job);
  }

  static variable_list backward(torch::autograd::AutogradContext* context, variable_list grads) {
    const auto held = context->saved_data["job"].toCapsule();
    const RegatherJobPtr job = RegatherJobPtr::reclaim_copy(static_cast<RegatherJob*>(held.get()));
    const variable_list saved = context->get_saved_variables();
    const size_t layers = job->biased.size();
    std::optional<Gathering> again;
    if (!job->late) again.emplace(saved[0], job->axis.group, job->counts);
    at::Tensor back = rows_of(grads[0]).mm(saved[1]);
    for (size_t i = 1; i < layers; ++i) back.addmm_(rows_of(grads[i]), saved[i + 1]);
    std::vector<int64_t> sizes = grads[0].sizes().vec();
    sizes.back() = back.size(1);
    Returning own(back.view(sizes), *job);
    back.reset();
    variable_list result = {at::Tensor(), at::Tensor()};
    if (job->late) {
      queue(job, saved[0], grads);
      result.resize(2 + static_cast<size_t>(context->saved_data["given"].toInt()) + 1);
    } else {
      const at::Tensor whole = rows_of(again->take());
      for (size_t i = 0; i < layers; ++i) {
        result.push_back(rows_of(grads[i]).t().mm(whole));
        if (job->biased[i]) result.push_back(rows_of(grads[i]).sum(0));
      }
      result.push_back(at::Tensor());
    }
    result[1] = own.take();
    return result;
  }

 private:
  // The gradient of the input on its way: the sum over ranks, each gets its tokens.
  struct Returning {
    Returning(const at::Tensor& whole, const RegatherJob& job) {
      const MemoryScope buffers(MemoryKind::communication);
      const at::Tensor front = whole.movedim(1, 0).contiguous();
      std::vector<int64_t> sizes = front.sizes().vec();
      sizes[0] = job.counts[static_cast<size_t>(job.axis.group.rank())];
      share = at::empty(sizes, front.options());
      pending = job.axis.group.reduce_scatter(share, front, comm::Op::sum, job.counts);
    }
    at::Tensor take() {
      pending.wait();
      return share.movedim(0, 1);
    }
    at::Tensor share;
    comm::Pending pending;
  };

  static void queue(const RegatherJobPtr& job, const at::Tensor& x, const variable_list& grads) {
    size_t uses = 0;
    for (const SplitWeights& place : job->places) uses += place.weight.defined() ? 1 : 0;
    const auto input = std::make_shared<GatheredOnce>(x, job, uses);
    for (size_t i = 0; i < job->places.size(); ++i) {
      const at::Tensor& grad = grads[i];
      const auto& [weight, bias] = job->places[i];
      if (bias.defined())
        job->axis.later->add(job->key, {bias, [grad] { return rows_of(grad).sum(0); }, job->place});
      if (weight.defined())
        job->axis.later->add(
            job->key,
            {weight, [grad, input] { return rows_of(grad).t().mm(input->rows()); }, job->place});
    }
  }
};

}  // namespace

std::vector<at::Tensor> regathered_columns(const at::Tensor& x,
                                           const std::vector<SplitWeights>& layers,
                                           const SplitAxis& axis, int64_t tokens) {
  auto job = c10::make_intrusive<RegatherJob>();
  job->axis = axis;
  job->counts = token_counts(x, axis, tokens);
  job->layers = layers;
  job->late = axis.later != nullptr && axis.later->active() && at::GradMode::is_enabled();
  job->key = job->late ? axis.later->key() : 0;
  job->place = at::sequence_number::peek();
  std::vector<at::Tensor> given;
  for (const SplitWeights& layer : layers) {
    job->biased.push_back(layer.bias.defined());
    if (job->late) {  // then the first half of the backward pass does not walk to them
      job->places.push_back(
          {kernels::gradient_place(layer.weight), kernels::gradient_place(layer.bias)});
      continue;
    }
    given.push_back(layer.weight);
    if (layer.bias.defined()) given.push_back(layer.bias);
  }
  const bool anchored = job->late && !x.requires_grad();
  const at::Tensor anchor = at::empty({0}, x.options()).requires_grad_(anchored);
  std::vector<at::Tensor> outputs = Regather::apply(anchor, x, at::TensorList(given), job);
  job->layers.clear();
  return outputs;
}

}  // namespace braid::parallel
