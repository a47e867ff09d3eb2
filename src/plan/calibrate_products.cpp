// SPDX-License-Identifier: BSD-3-Clause
// Sizes of matrix products and convolutions that models of the field meet: a grid of
// tokens and widths, not the layers of any one of them.
#include <array>

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
  const auto make = [=](Pool& pool) -> std::function<void()> {
    const at::Tensor a =
        turned == Turned::left ? pool.take({k, m}, type).t() : pool.take({m, k}, type);
    const at::Tensor b =
        turned == Turned::right ? pool.take({n, k}, type).t() : pool.take({k, n}, type);
    // A gradient of weights is in fp32, whatever it comes from.
    if (turned == Turned::left && pool.device().is_cuda() && c10::elementSize(type) == 2)
      return [a, b] { at::mm(a, b, c10::kFloat); };
    return [a, b] { at::mm(a, b); };
  };
  // Small factors are still in the cache where the kernel before wrote them, large ones are not.
  constexpr double cached = 24e6;
  task.prepare = [=, bytes = task.bytes](Pool& pool) {
    return bytes < cached ? make(pool) : in_turn(pool, bytes, [&] { return make(pool); });
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
  bool last = false;  // channels are: tokens seen as an image
};

at::Tensor take_image(Pool& pool, const Window& w, int64_t channels, int64_t edge,
                      c10::ScalarType type) {
  if (!w.last) return pool.take({w.batch, channels, edge, edge}, type);
  return pool.take({w.batch, edge, edge, channels}, type).permute({0, 3, 1, 2});
}

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
    const at::Tensor x = take_image(pool, w, w.in, w.edge, type);
    const at::Tensor weight = pool.take({w.out, w.in, w.kernel, w.kernel}, type);
    const at::Tensor bias = pool.take({w.out}, type);
    const std::vector<int64_t> strides(2, w.stride), pads(2, padding), one(2, 1), none(2, 0);
    if (!backward)
      return [=] { at::convolution(x, weight, bias, strides, pads, one, false, none, 1); };
    const at::Tensor grad = take_image(pool, w, w.out, out_edge, type);
    return [=] {
      at::convolution_backward(grad, x, weight, std::vector<int64_t>{w.out}, strides, pads, one,
                               false, none, 1, {true, true, true});
    };
  };
  return task;
}

void add_layers(const TaskOptions& options, const std::string& dtype, std::vector<Task>& tasks) {
  using List = std::vector<int64_t>;
  const bool half = c10::elementSize(task_dtype(dtype)) == 2;
  const List tokens = options.small ? List{64, 256}
                      : half        ? List{1024, 4096, 16384, 65536}
                                    : List{4096, 65536};
  const List widths = options.small ? List{32, 64}
                      : half        ? List{96, 192, 384, 768, 1536, 4096, 12288}
                                    : List{192, 384, 768, 1536, 4096};
  for (const int64_t rows : tokens)
    for (const int64_t in : widths)
      for (const int64_t out : widths)
        if (in <= 8 * out && out <= 8 * in) add_layer(tasks, dtype, rows, in, out);
  if (options.small) return;
  // A row of scores for each word of a vocabulary.
  for (const int64_t rows : half ? List{4096, 16384} : List{4096})
    for (const int64_t in : {768, 4096})
      for (const int64_t out : half ? List{32768, 65536, 131072} : List{65536})
        add_layer(tasks, dtype, rows, in, out);
  for (const int64_t in : {90, 180})  // rows that are no multiple of 16 bytes
    for (const int64_t out : {180, 362}) add_layer(tasks, dtype, 16384, in, out);
  add_layer(tasks, dtype, 16384, 1024, 32001);
}

void add_windows_of(const std::string& dtype, std::vector<Task>& tasks) {
  const std::vector<Window> windows = {
      {4, 180, 180, 64, 3, 1},  {16, 180, 180, 64, 3, 1}, {4, 192, 192, 64, 3, 1},
      {16, 192, 192, 64, 3, 1}, {16, 3, 180, 64, 3, 1},   {8, 96, 96, 128, 3, 1},
      {16, 64, 256, 64, 3, 1},  {16, 64, 3, 128, 3, 1},   {4, 20, 384, 256, 8, 8},
      {16, 20, 768, 256, 8, 8}, {8, 16, 1024, 256, 4, 4}};
  for (Window window : windows)
    for (const bool last : {false, true}) {
      window.last = last;
      if (last && (window.stride > 1 || window.in < 16)) continue;
      for (const bool back : {false, true}) tasks.push_back(convolution_task(dtype, window, back));
    }
}

}  // namespace

void add_product_tasks(const TaskOptions& options, std::vector<Task>& tasks) {
  for (const std::string& dtype : options.dtypes) {
    add_layers(options, dtype, tasks);
    if (options.small) {
      tasks.push_back(batched_task(dtype, {8, 32, 32, 16}, true));
      for (const bool back : {false, true})
        tasks.push_back(convolution_task(dtype, {1, 4, 8, 8, 3, 1}, back));
      continue;
    }
    const auto add_batched = [&](int64_t batch, int64_t length, int64_t width) {
      tasks.push_back(batched_task(dtype, {batch, length, length, width}, true));
      tasks.push_back(batched_task(dtype, {batch, length, width, length}, false));
    };
    for (const int64_t batch : {96, 6144})
      for (const int64_t width : {30, 32, 64}) add_batched(batch, 64, width);
    for (const int64_t length : {512, 2048})
      for (const int64_t width : {48, 64, 128}) add_batched(24, length, width);
    add_windows_of(dtype, tasks);
  }
}

}  // namespace braid::plan
