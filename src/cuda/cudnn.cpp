// SPDX-License-Identifier: BSD-3-Clause
// Attention as graphs of cuDNN, built once for each kind of tensors by cudnn-frontend.
#include <ATen/cudnn/Handle.h>
#include <ATen/ops/empty.h>
#include <c10/util/Exception.h>
#include <cudnn_frontend.h>

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "cuda/attention.h"

namespace braid::cuda {
namespace {

namespace fe = cudnn_frontend;
using fe::graph::Graph;
using fe::graph::Tensor_attributes;
using Attributes = std::shared_ptr<Tensor_attributes>;
using Named = std::vector<std::pair<int64_t, at::Tensor>>;

enum Name : int64_t { q = 1, k, v, out, sums, grad, to_q, to_k, to_v };

Named tensors_of(const AttentionTensors& all) {
  Named named = {{q, all.q}, {k, all.k}, {v, all.v}, {out, all.out}, {sums, all.sums}};
  if (all.grad.defined())
    named.insert(named.end(),
                 {{grad, all.grad}, {to_q, all.to_q}, {to_k, all.to_k}, {to_v, all.to_v}});
  return named;
}

// What a graph depends on.
using Key = std::pair<std::vector<int64_t>, double>;

Key key_of(const AttentionTensors& all, const Named& named) {
  std::vector<int64_t> key = {all.q.get_device(), static_cast<int64_t>(all.q.scalar_type()),
                              all.causal ? 1 : 0};
  for (const auto& [name, tensor] : named) {
    key.insert(key.end(), tensor.sizes().begin(), tensor.sizes().end());
    key.insert(key.end(), tensor.strides().begin(), tensor.strides().end());
  }
  return {key, all.scale};
}

template <class To>
void describe(To& to, const at::Tensor& tensor, int64_t name) {
  to.set_uid(name).set_dim(tensor.sizes().vec()).set_stride(tensor.strides().vec());
  if (name == sums) to.set_data_type(fe::DataType_t::FLOAT);
}

Attributes input(Graph& graph, const at::Tensor& tensor, int64_t name) {
  Tensor_attributes attributes;
  attributes.set_name(std::to_string(name));
  describe(attributes, tensor, name);
  return graph.tensor(attributes);
}

void output(const Attributes& made, const at::Tensor& tensor, int64_t name) {
  made->set_output(true);
  describe(*made, tensor, name);
}

template <class Options>
Options options_of(const AttentionTensors& all) {
  Options options;
  options.set_name("attention").set_attn_scale(static_cast<float>(all.scale));
  if (all.causal)
    options.set_diagonal_alignment(fe::DiagonalAlignment_t::TOP_LEFT)
        .set_diagonal_band_right_bound(0);
  return options;
}

void add_forward(Graph& graph, const AttentionTensors& all) {
  auto options = options_of<fe::graph::SDPA_attributes>(all);
  options.set_generate_stats(true);
  const auto made =
      graph.sdpa(input(graph, all.q, q), input(graph, all.k, k), input(graph, all.v, v), options);
  output(made[0], all.out, out);
  output(made[1], all.sums, sums);
}

void add_backward(Graph& graph, const AttentionTensors& all) {
  const auto options = options_of<fe::graph::SDPA_backward_attributes>(all);
  const auto made =
      graph.sdpa_backward(input(graph, all.q, q), input(graph, all.k, k), input(graph, all.v, v),
                          input(graph, all.out, out), input(graph, all.grad, grad),
                          input(graph, all.sums, sums), options);
  output(made[0], all.to_q, to_q);
  output(made[1], all.to_k, to_k);
  output(made[2], all.to_v, to_v);
}

// Null: cuDNN has no kernel.
std::shared_ptr<Graph> build(const AttentionTensors& all, cudnnHandle_t handle) {
  auto graph = std::make_shared<Graph>();
  graph
      ->set_io_data_type(all.q.scalar_type() == at::kHalf ? fe::DataType_t::HALF
                                                          : fe::DataType_t::BFLOAT16)
      .set_intermediate_data_type(fe::DataType_t::FLOAT)
      .set_compute_data_type(fe::DataType_t::FLOAT);
  if (all.grad.defined())
    add_backward(*graph, all);
  else
    add_forward(*graph, all);
  return graph->build(handle, {fe::HeurMode_t::A}).is_good() ? graph : nullptr;
}

// Of each thread: a graph must not run on two at once. Never freed: at the end of a thread cuDNN
// may be gone.
std::shared_ptr<Graph> graph_of(const AttentionTensors& all, const Named& named,
                                cudnnHandle_t handle) {
  thread_local auto& built = *new std::map<Key, std::shared_ptr<Graph>>;
  const Key key = key_of(all, named);
  const auto found = built.find(key);
  if (found != built.end()) return found->second;
  return built.emplace(key, build(all, handle)).first->second;
}

}  // namespace

bool attend_by_cudnn(const AttentionTensors& all) {
  const Named named = tensors_of(all);
  cudnnHandle_t handle = at::native::getCudnnHandle();  // with the current stream
  const std::shared_ptr<Graph> graph = graph_of(all, named, handle);
  if (graph == nullptr) return false;
  std::unordered_map<int64_t, void*> memory;
  for (const auto& [name, tensor] : named) memory[name] = tensor.data_ptr();
  const at::Tensor workspace =
      at::empty({graph->get_workspace_size()}, all.q.options().dtype(at::kByte));
  fe::error_t error = graph->execute(handle, memory, workspace.data_ptr());
  TORCH_CHECK(error.is_good(), "attention by cuDNN: ", error.get_message());
  return true;
}

}  // namespace braid::cuda
