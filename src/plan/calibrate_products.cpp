// SPDX-License-Identifier: BSD-3-Clause
// Sizes of matrix products, convolutions and attention that models of the field meet: a grid of
// tokens and widths, not the layers of any one of them.
#include <fmt/format.h>

#include <array>

#include <ATen/ops/_scaled_dot_product_efficient_attention.h>
#include <ATen/ops/_scaled_dot_product_efficient_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_backward.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu.h>
#include <ATen/ops/_scaled_dot_product_flash_attention_for_cpu_backward.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/mm.h>

#include "plan/calibrate_tasks.h"

namespace braid::plan {
namespace {

enum class Turned : uint8_t { none, right, left };  // which factor is given as its transpose

Task product_task(const std::string& dtype, Turned turned, int64_t m, int64_t n, int64_t k) {
  Task task;
  task.work = Work::gemm;
  task.name = turned == Turned::none ? "gemm_nn" : turned == Turned::right ? "gemm_nt" : "gemm_tn";
  task.dtype = task_dtype(dtype);
  task.tf32 = dtype == "tf32";
  const c10::ScalarType type = task.dtype;
  const auto element = static_cast<double>(c10::elementSize(type));
  const double rows = static_cast<double>(m), columns = static_cast<double>(n),
               inner = static_cast<double>(k);
  task.flops = 2 * rows * columns * inner;
  task.bytes = (rows * inner + inner * columns + rows * columns) * element;
  task.prepare = [=](Pool& pool) -> std::function<void()> {
    const at::Tensor a =
        turned == Turned::left ? pool.take({k, m}, type).t() : pool.take({m, k}, type);
    const at::Tensor b =
        turned == Turned::right ? pool.take({n, k}, type).t() : pool.take({k, n}, type);
    return [a, b] { at::mm(a, b); };
  };
  return task;
}

// As a layer meets them: forward x W^T, the gradient of its input g W, of its weight g^T x.
void add_layer(std::vector<Task>& tasks, const std::string& dtype, int64_t tokens, int64_t in,
               int64_t out) {
  tasks.push_back(product_task(dtype, Turned::right, tokens, out, in));
  tasks.push_back(product_task(dtype, Turned::none, tokens, in, out));
  tasks.push_back(product_task(dtype, Turned::left, out, in, tokens));
}

Task batched_task(const std::string& dtype, std::array<int64_t, 4> at, bool right_turned) {
  const auto [b, m, n, k] = at;
  Task task;
  task.work = Work::batched;
  task.name = "batched";
  task.dtype = task_dtype(dtype);
  task.tf32 = dtype == "tf32";
  const c10::ScalarType type = task.dtype;
  task.flops = 2 * static_cast<double>(b) * static_cast<double>(m * n) * static_cast<double>(k);
  task.bytes = static_cast<double>(b) * static_cast<double>(m * k + k * n + m * n) *
               static_cast<double>(c10::elementSize(type));
  task.prepare = [=, b = b, m = m, n = n, k = k](Pool& pool) -> std::function<void()> {
    const at::Tensor left = pool.take({b, m, k}, type);
    const at::Tensor right =
        right_turned ? pool.take({b, n, k}, type).transpose(1, 2) : pool.take({b, k, n}, type);
    return [left, right] { at::bmm(left, right); };
  };
  return task;
}

struct Window {
  int64_t batch, in, out, edge, kernel, stride;
};

Task convolution_task(const std::string& dtype, Window w, bool backward) {
  Task task;
  task.work = backward ? Work::convolution_backward : Work::convolution;
  task.name = std::string(to_text(task.work));
  task.dtype = task_dtype(dtype);
  task.tf32 = dtype == "tf32";
  const c10::ScalarType type = task.dtype;
  const int64_t padding = w.stride == 1 ? w.kernel / 2 : 0;
  const int64_t out_edge = (w.edge + 2 * padding - w.kernel) / w.stride + 1;
  task.flops = (backward ? 4.0 : 2.0) * static_cast<double>(w.batch * out_edge * out_edge) *
               static_cast<double>(w.out * w.in * w.kernel * w.kernel);
  task.bytes =
      static_cast<double>(w.batch * (w.in * w.edge * w.edge + w.out * out_edge * out_edge)) *
      static_cast<double>(c10::elementSize(type));
  task.prepare = [=](Pool& pool) -> std::function<void()> {
    const at::Tensor x = pool.take({w.batch, w.in, w.edge, w.edge}, type);
    const at::Tensor weight = pool.take({w.out, w.in, w.kernel, w.kernel}, type);
    const at::Tensor bias = pool.take({w.out}, type);
    const std::vector<int64_t> strides(2, w.stride), pads(2, padding), one(2, 1), none(2, 0);
    if (!backward)
      return [=] { at::convolution(x, weight, bias, strides, pads, one, false, none, 1); };
    const at::Tensor grad = pool.take({w.batch, w.out, out_edge, out_edge}, type);
    return [=] {
      at::convolution_backward(grad, x, weight, std::vector<int64_t>{w.out}, strides, pads, one,
                               false, none, 1, {true, true, true});
    };
  };
  return task;
}

struct Heads {
  int64_t batch, heads, tokens, width;
  bool causal;
};

// q, k and v as a layer gives them: heads of a token beside each other.
at::Tensor heads_of(Pool& pool, const Heads& h, c10::ScalarType type) {
  return pool.take({h.batch, h.tokens, h.heads, h.width}, type).transpose(1, 2);
}

std::function<void()> flash_run(Pool& pool, const Heads& h, c10::ScalarType type, bool backward) {
  const at::Tensor q = heads_of(pool, h, type), k = heads_of(pool, h, type),
                   v = heads_of(pool, h, type);
  if (!backward)
    return [=] { at::_scaled_dot_product_flash_attention(q, k, v, 0.0, h.causal, false); };
  const auto out = at::_scaled_dot_product_flash_attention(q, k, v, 0.0, h.causal, false);
  const at::Tensor grad = heads_of(pool, h, type);
  const auto& [y, lse, cum_q, cum_k, max_q, max_k, seed, offset, mask] = out;
  return [=, y = y, lse = lse, cum_q = cum_q, cum_k = cum_k, max_q = max_q, max_k = max_k,
          seed = seed, offset = offset] {
    at::_scaled_dot_product_flash_attention_backward_symint(
        grad, q, k, v, y, lse, cum_q, cum_k, max_q, max_k, 0.0, h.causal, seed, offset);
  };
}

std::function<void()> efficient_run(Pool& pool, const Heads& h, c10::ScalarType type,
                                    bool backward) {
  const at::Tensor q = heads_of(pool, h, type), k = heads_of(pool, h, type),
                   v = heads_of(pool, h, type);
  if (!backward)
    return [=] { at::_scaled_dot_product_efficient_attention(q, k, v, {}, true, 0.0, h.causal); };
  const auto out = at::_scaled_dot_product_efficient_attention(q, k, v, {}, true, 0.0, h.causal);
  const at::Tensor grad = heads_of(pool, h, type);
  const auto& [y, lse, seed, offset] = out;
  return [=, y = y, lse = lse, seed = seed, offset = offset] {
    at::_scaled_dot_product_efficient_attention_backward(grad, q, k, v, {}, y, lse, seed, offset,
                                                         0.0, {true, true, true, false}, h.causal);
  };
}

std::function<void()> cpu_run(Pool& pool, const Heads& h, c10::ScalarType type, bool backward) {
  const at::Tensor q = heads_of(pool, h, type), k = heads_of(pool, h, type),
                   v = heads_of(pool, h, type);
  if (!backward)
    return [=] { at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, h.causal); };
  const auto out = at::_scaled_dot_product_flash_attention_for_cpu(q, k, v, 0.0, h.causal);
  const at::Tensor grad = heads_of(pool, h, type);
  return [=, y = std::get<0>(out), lse = std::get<1>(out)] {
    at::_scaled_dot_product_flash_attention_for_cpu_backward(grad, q, k, v, y, lse, 0.0, h.causal);
  };
}

Task attention_task(const std::string& dtype, const Heads& h, bool gpu, bool backward) {
  Task task;
  task.work = backward ? Work::attention_backward : Work::attention;
  task.dtype = task_dtype(dtype);
  task.tf32 = dtype == "tf32";
  const c10::ScalarType type = task.dtype;
  const bool flash = c10::elementSize(type) == 2;
  task.name = fmt::format("{}_{}{}", to_text(task.work), flash || !gpu ? "flash" : "efficient",
                          h.causal ? "_causal" : "");
  task.flops = (backward ? 10.0 : 4.0) * static_cast<double>(h.batch * h.heads * h.tokens) *
               static_cast<double>(h.tokens * h.width) * (h.causal ? 0.5 : 1.0);
  task.bytes = 8 * static_cast<double>(h.batch * h.heads * h.tokens * h.width) *
               static_cast<double>(c10::elementSize(type));
  task.prepare = [=](Pool& pool) {
    if (!gpu) return cpu_run(pool, h, type, backward);
    return flash ? flash_run(pool, h, type, backward) : efficient_run(pool, h, type, backward);
  };
  return task;
}

}  // namespace

void add_product_tasks(const TaskOptions& options, std::vector<Task>& tasks) {
  using List = std::vector<int64_t>;
  const List tokens = options.small ? List{64, 256} : List{1024, 4096, 16384, 65536};
  const List widths = options.small ? List{32, 64} : List{96, 192, 384, 768, 1536, 4096, 12288};
  for (const std::string& dtype : options.dtypes) {
    for (const int64_t rows : tokens)
      for (const int64_t in : widths)
        for (const int64_t out : widths) {
          if (in > 8 * out || out > 8 * in) continue;
          add_layer(tasks, dtype, rows, in, out);
        }
    if (options.small) {
      tasks.push_back(batched_task(dtype, {8, 32, 32, 16}, true));
      for (const bool back : {false, true})
        tasks.push_back(convolution_task(dtype, {1, 4, 8, 8, 3, 1}, back));
      continue;
    }
    for (const int64_t rows : {4096, 16384})  // a row of scores for each word of a vocabulary
      for (const int64_t in : {768, 4096})
        for (const int64_t out : {32768, 65536, 131072}) add_layer(tasks, dtype, rows, in, out);
    for (const int64_t rows : {4096, 16384, 65536})  // rows that are no multiple of 16 bytes
      for (const int64_t in : {90, 180, 362})
        for (const int64_t out : {180, 362, 724}) add_layer(tasks, dtype, rows, in, out);
    for (const int64_t rows : {4096, 16384}) add_layer(tasks, dtype, rows, 1024, 32001);
    for (const int64_t batch : {96, 1536, 6144, 24576})
      for (const int64_t width : {16, 30, 32, 60}) {
        tasks.push_back(batched_task(dtype, {batch, 64, 64, width}, true));
        tasks.push_back(batched_task(dtype, {batch, 64, width, 64}, false));
      }
    for (const int64_t batch : {24, 96})
      for (const int64_t length : {512, 1024, 2048})
        for (const int64_t width : {48, 64, 128}) {
          tasks.push_back(batched_task(dtype, {batch, length, length, width}, true));
          tasks.push_back(batched_task(dtype, {batch, length, width, length}, false));
        }
    const std::vector<Window> windows = {
        {4, 180, 180, 64, 3, 1}, {16, 180, 180, 64, 3, 1}, {16, 3, 180, 64, 3, 1},
        {8, 96, 96, 128, 3, 1},  {16, 64, 256, 64, 3, 1},  {16, 64, 3, 128, 3, 1},
        {4, 20, 384, 256, 8, 8}, {16, 20, 768, 256, 8, 8}, {8, 16, 1024, 256, 4, 4}};
    for (const Window& window : windows)
      for (const bool back : {false, true}) tasks.push_back(convolution_task(dtype, window, back));
  }
}

void add_attention_tasks(const TaskOptions& options, std::vector<Task>& tasks) {
  using List = std::vector<int64_t>;
  const List lengths = options.small ? List{64} : List{512, 1024, 2048, 4096, 8192};
  const List widths = options.small ? List{16} : List{32, 48, 64, 96, 128, 192};
  for (const std::string& dtype : options.dtypes)
    for (const int64_t tokens : lengths)
      for (const int64_t width : widths)
        for (const int64_t batch : options.small ? List{1} : List{1, 4, 16})
          for (const bool causal : {false, true})
            for (const bool back : {false, true})
              tasks.push_back(
                  attention_task(dtype, {batch, 8, tokens, width, causal}, options.gpu, back));
}

}  // namespace braid::plan
