// SPDX-License-Identifier: BSD-3-Clause
// braid's own kernels, called as the models call them.
#include <array>
#include <cmath>
#include <memory>

#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>
#include <torch/csrc/autograd/autograd.h>

#include "braid/kernels/activation.h"
#include "braid/kernels/attention.h"
#include "braid/kernels/head_loss.h"
#include "braid/kernels/norm.h"
#include "braid/kernels/rotary.h"
#include "braid/kernels/window_attention.h"
#include "plan/calibrate_tasks.h"

namespace braid::plan {
namespace {

using kernels::Activated;
using kernels::Activation;
using Run = std::function<void()>;

double product_of(at::IntArrayRef sizes) {
  double all = 1;
  for (const int64_t size : sizes) all *= static_cast<double>(size);
  return all;
}

c10::ScalarType sum_dtype(c10::ScalarType type) {
  return type == c10::kDouble ? c10::kDouble : c10::kFloat;
}

// Of tensors with `count` elements each; in place where the step works in place, and with the sum
// that the layer before needs for its bias.
Run activation_run(Pool& pool, Activation kind, int64_t count, c10::ScalarType type, bool back) {
  constexpr int64_t width = 1280;
  const auto take = [&] { return pool.take({count / width, width}, type); };
  const bool swiglu = kind == Activation::swiglu;
  const at::Tensor x = take(), up = swiglu ? take() : at::Tensor();
  const Activated input(kind, x, up);
  if (!back) return [=] { kernels::activation_value(input); };
  const at::Tensor grad = take().clone();
  const auto sum = swiglu ? std::nullopt : std::optional(sum_dtype(type));
  return [=] {
    at::Tensor overwritten = grad;
    kernels::activation_back(input, overwritten, sum);
  };
}

Run rotary_run(Pool& pool, int64_t count, c10::ScalarType type) {
  constexpr int64_t heads = 10, width = 128;  // of q and k
  const int64_t tokens = std::max<int64_t>(1, count / heads / width);
  const at::Tensor q = pool.take({1, tokens, 8, width}, type),
                   k = pool.take({1, tokens, 2, width}, type);
  const auto wide = at::TensorOptions().device(pool.device()).dtype(c10::kFloat);
  const kernels::Turn turn{at::ones({tokens, width / 2}, wide),
                           at::zeros({tokens, width / 2}, wide)};
  return [=] { kernels::rotary(q, k, turn); };
}

struct OwnStream {
  const char* name;
  double moved;  // tensors read and written
  std::function<Run(Pool&, int64_t count, c10::ScalarType)> make;
};

std::vector<OwnStream> own_streams() {
  const auto activation = [](Activation kind, bool back) {
    return [=](Pool& pool, int64_t count, c10::ScalarType type) {
      return activation_run(pool, kind, count, type, back);
    };
  };
  return {{"pointwise_gelu", 2, activation(Activation::gelu, false)},
          {"pointwise_gelu_grad", 4, activation(Activation::gelu, true)},
          {"pointwise_swiglu", 3, activation(Activation::swiglu, false)},
          {"pointwise_swiglu_grad", 6, activation(Activation::swiglu, true)},
          {"pointwise_rotary", 2, rotary_run}};
}

Task own_stream_task(const OwnStream& kind, c10::ScalarType dtype, int64_t bytes) {
  Task task{.work = Work::pointwise, .name = kind.name, .dtype = dtype};
  task.bytes = static_cast<double>(bytes);
  const auto element = static_cast<double>(c10::elementSize(dtype));
  const auto count = static_cast<int64_t>(task.bytes / element / kind.moved) / 1280 * 1280;
  task.prepare = [=, make = kind.make](Pool& pool) {
    return in_turn(pool, static_cast<double>(bytes), [&] { return make(pool, count, dtype); });
  };
  return task;
}

// Of a block: a sum in fp32 that a branch of its dtype is added to, normalised in that dtype.
struct NormRows {
  int64_t rows, width;
  bool layer;  // or RMS
};

Run norm_run(Pool& pool, const NormRows& n, c10::ScalarType type) {
  const c10::ScalarType wide = sum_dtype(type);
  const kernels::NormWeights weights = {pool.take({n.width}, wide),
                                        n.layer ? pool.take({n.width}, wide) : at::Tensor()};
  const at::Tensor x = pool.take({n.rows, n.width}, wide),
                   branch = pool.take({n.rows, n.width}, type);
  return [=] { kernels::add_norm_rows(x, branch, weights, {.dtype = type}); };
}

// With the gradient of the sum, the result once more for the layer behind, and the sum over rows
// that the layer of the branch needs for its bias.
Run norm_grad_run(Pool& pool, const NormRows& n, c10::ScalarType type) {
  using Maybe = const std::optional<at::Tensor>&;
  using Grads = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
  const auto op =
      c10::Dispatcher::singleton()
          .findSchemaOrThrow(n.layer ? "braid::layer_norm_grad" : "braid::rms_norm_grad", "")
          .typed<Grads(const at::Tensor&, Maybe, const at::Tensor&, const at::Tensor&, Maybe,
                       const at::Tensor&, std::optional<c10::ScalarType>, Maybe, double, bool,
                       std::optional<c10::ScalarType>)>();
  const auto wide = [&](at::IntArrayRef sizes) { return pool.take(sizes, sum_dtype(type)); };
  const at::Tensor grad = pool.take({n.rows, n.width}, type), of_sum = wide({n.rows, n.width}),
                   sum = wide({n.rows, n.width}), weight = wide({n.width}),
                   statistics = at::ones({n.rows, n.layer ? 2 : 1}, sum.options());
  const auto bias = n.layer ? std::optional(wide({n.width})) : std::nullopt;
  const auto of_bias = n.layer ? std::optional(sum_dtype(type)) : std::nullopt;
  return [=] {
    op.call(grad, of_sum, sum, weight, bias, statistics, type, std::nullopt, 0, true, of_bias);
  };
}

Task norm_task(c10::ScalarType dtype, const NormRows& n, bool back) {
  const Work work = back ? Work::norm_backward : Work::norm;
  Task task{.work = work, .dtype = dtype};
  task.name = fmt::format("{}{}", to_text(work), n.layer ? "" : "_rms");
  const auto element = static_cast<double>(c10::elementSize(dtype));
  task.bytes = product_of({n.rows, n.width}) * (back ? 12 + 3 * element : 8 + 2 * element);
  task.prepare = [=, bytes = task.bytes](Pool& pool) {
    return in_turn(pool, bytes,
                   [&] { return back ? norm_grad_run(pool, n, dtype) : norm_run(pool, n, dtype); });
  };
  return task;
}

Task columns_task(c10::ScalarType dtype, int64_t rows, int64_t width) {
  Task task{.work = Work::reduce, .name = "reduce_columns_own", .dtype = dtype};
  task.bytes = product_of({rows, width}) * static_cast<double>(c10::elementSize(dtype));
  task.prepare = [=, bytes = task.bytes](Pool& pool) {
    const auto op = c10::Dispatcher::singleton()
                        .findSchemaOrThrow("braid::column_sum", "")
                        .typed<at::Tensor(const at::Tensor&, c10::ScalarType)>();
    return in_turn(pool, bytes, [&]() -> Run {
      const at::Tensor x = pool.take({rows, width}, dtype);
      return [=] { op.call(x, c10::kFloat); };
    });
  };
  return task;
}

Task own_loss_task(c10::ScalarType dtype, int64_t rows, int64_t classes) {
  Task task{.work = Work::loss_backward, .name = "loss_backward_in_place", .dtype = dtype};
  task.bytes = 2 * product_of({rows, classes}) * static_cast<double>(c10::elementSize(dtype));
  task.prepare = [=](Pool& pool) -> Run {
    const at::Tensor scores = pool.take({rows, classes}, dtype).clone();
    const at::TensorOptions there = scores.options();
    const at::Tensor losses = at::zeros({rows}, there.dtype(c10::kFloat));
    const at::Tensor target = at::arange(rows, there.dtype(c10::kLong)).remainder_(classes);
    const at::Tensor weight = at::ones({}, there.dtype(c10::kFloat));
    return [=] { kernels::cross_entropy_in_place(scores, losses, target, weight, -100); };
  };
  return task;
}

// Backward the graph is kept: only its gradients are timed.
Run run_or_back(const std::function<at::Tensor()>& forward, const std::vector<at::Tensor>& leaves,
                bool back) {
  if (!back) return [=] { forward(); };
  for (const at::Tensor& leaf : leaves) leaf.requires_grad_();
  const at::Tensor y = forward(), grad = y.detach().clone();
  return [=] { torch::autograd::grad({y}, leaves, {grad}, /*retain_graph=*/true); };
}

struct Heads {
  int64_t batch, tokens, width;
  bool causal;
  bool cudnn = true;  // where it has a kernel
};

Task attention_task(const std::string& dtype, const Heads& h, bool back) {
  constexpr int64_t heads = 8;
  const c10::ScalarType type = task_dtype(dtype);
  const Work work = back ? Work::attention_backward : Work::attention;
  Task task{.work = work, .dtype = type};
  task.name = fmt::format("{}{}", to_text(work), h.causal ? "_causal" : "");
  const double rows = product_of({h.batch, heads, h.tokens, h.width});
  task.flops = (back ? 10.0 : 4.0) * rows * static_cast<double>(h.tokens) * (h.causal ? 0.5 : 1.0);
  task.bytes = 8 * rows * static_cast<double>(c10::elementSize(type));
  task.prepare = [=](Pool& pool) -> Run {
    // q, k and v of a token beside each other, as a layer gives them.
    const std::vector<at::Tensor> qkv =
        pool.take({h.batch, h.tokens, 3, heads, h.width}, type).transpose(1, 3).unbind(2);
    std::vector<at::Tensor> leaves;
    for (const at::Tensor& x : qkv) leaves.push_back(x.detach());
    const auto forward = [=] {
      return kernels::attention(leaves[0], leaves[1], leaves[2],
                                {.causal = h.causal, .cudnn = h.cudnn});
    };
    return run_or_back(forward, leaves, back);
  };
  return task;
}

Task window_task(const std::string& dtype, int64_t images, int64_t width, bool back) {
  constexpr int64_t edge = 64, heads = 6, side = 8;
  const c10::ScalarType type = task_dtype(dtype);
  const Work work = back ? Work::attention_backward : Work::attention;
  Task task{.work = work, .dtype = type};
  task.name = fmt::format("{}_window", to_text(work));
  task.bytes = (back ? 8.0 : 4.0) * product_of({images, edge, edge, heads, width}) *
               static_cast<double>(c10::elementSize(type));
  // Every second block has its windows shifted.
  const double scale = 1 / std::sqrt(static_cast<double>(width));
  const std::array<kernels::WindowOptions, 2> blocks = {
      kernels::WindowOptions{.window = side, .scale = scale},
      kernels::shifted_windows(side, scale)};
  task.prepare = [=](Pool& pool) -> Run {
    const at::Tensor qkv = pool.take({images, edge, edge, 3 * heads * width}, type),
                     table = pool.take({(2 * side - 1) * (2 * side - 1), heads}, sum_dtype(type)),
                     grad = pool.take({images, edge, edge, heads * width}, type);
    const auto turn = std::make_shared<size_t>(0);
    if (!back) return [=] { kernels::window_attention(qkv, table, blocks[(*turn)++ % 2]); };
    return [=] { kernels::window_attention_grads(grad, qkv, table, blocks[(*turn)++ % 2]); };
  };
  return task;
}

void add_windows(const TaskOptions& options, const std::string& dtype, std::vector<Task>& tasks) {
  using List = std::vector<int64_t>;
  for (const int64_t images : options.small ? List{1} : List{2, 8, 32})
    for (const int64_t width : options.small ? List{16} : List{30, 32, 64})
      for (const bool back : {false, true})
        tasks.push_back(window_task(dtype, images, width, back));
}

}  // namespace

void add_attention_tasks(const TaskOptions& options, std::vector<Task>& tasks) {
  using List = std::vector<int64_t>;
  for (const std::string& dtype : options.dtypes) {
    if (dtype == "tf32") continue;  // attention of fp32 is the same with and without
    const bool half = c10::elementSize(task_dtype(dtype)) == 2;
    const List lengths = options.small ? List{64}
                         : half        ? List{512, 1024, 4096, 8192}
                                       : List{1024, 4096};
    const List widths = options.small ? List{16}
                        : half        ? List{32, 48, 64, 128, 192}
                                      : List{32, 48, 64, 128};
    for (const int64_t tokens : lengths)
      for (const int64_t width : widths)
        for (const int64_t batch : options.small ? List{1} : List{2, 4, 16})
          for (const bool causal : {false, true})
            for (const bool back : {false, true})
              tasks.push_back(attention_task(dtype, {batch, tokens, width, causal}, back));
    if (half && !options.small)  // model.kernels: reference has flash attention
      for (const int64_t tokens : {1024, 4096})
        for (const int64_t width : {64, 128})
          for (const bool back : {false, true})
            for (const bool causal : {false, true})
              tasks.push_back(attention_task(dtype, {16, tokens, width, causal, false}, back));
    add_windows(options, dtype, tasks);
  }
}

// As many threads have a row as it is long; from 8192 on it does not fit into their registers.
void add_norm_tasks(const TaskOptions& options, std::vector<Task>& tasks) {
  using List = std::vector<int64_t>;
  const List rows = options.small ? List{64} : List{1024, 4096, 16384, 65536};
  const List widths = options.small ? List{32} : List{192, 384, 768, 1536, 4096, 8192, 12288};
  for (const std::string& name : options.dtypes) {
    if (name == "tf32") continue;
    for (const int64_t count : rows)
      for (const int64_t width : widths)
        for (const bool layer : {true, false})
          if (layer || width >= 768 || options.small)
            for (const bool back : {false, true})
              tasks.push_back(norm_task(task_dtype(name), {count, width, layer}, back));
  }
}

void add_own_tasks(const TaskOptions& options, std::vector<Task>& tasks) {
  using List = std::vector<int64_t>;
  const List sizes =
      options.small ? List{1 << 17} : List{1 << 18, 1 << 22, 1 << 26, 1 << 29, int64_t{1} << 31};
  const List rows = options.small ? List{64} : List{4096, 32768, 131072};
  const List widths = options.small ? List{32} : List{192, 768, 3072, 12288};
  for (const std::string& name : options.dtypes) {
    if (name == "tf32") continue;
    const c10::ScalarType dtype = task_dtype(name);
    for (const OwnStream& kind : own_streams())
      for (const int64_t bytes : sizes) tasks.push_back(own_stream_task(kind, dtype, bytes));
    for (const int64_t count : rows)
      for (const int64_t width : widths) tasks.push_back(columns_task(dtype, count, width));
    for (const int64_t count : options.small ? List{32} : List{4096, 16384})
      for (const int64_t classes : options.small ? List{100} : List{16384, 50304, 131072})
        tasks.push_back(own_loss_task(dtype, count, classes));
  }
}

}  // namespace braid::plan
