// SPDX-License-Identifier: BSD-3-Clause
// Kernels whose time is that of the bytes they move, over sizes from a page to gigabytes.
#include <ATen/ops/_foreach_mul.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_softmax.h>
#include <ATen/ops/_softmax_backward_data.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/embedding.h>
#include <ATen/ops/embedding_dense_backward.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/index_add.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/sort.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/zeros.h>

#include "braid/kernels/adam.h"
#include "braid/kernels/cross_entropy.h"
#include "braid/kernels/dropout.h"
#include "plan/calibrate_tasks.h"

namespace braid::plan {
namespace {

using Run = std::function<void()>;
// Makes a run over tensors of `count` elements.
using Maker = std::function<Run(Pool&, int64_t count, c10::ScalarType)>;

struct StreamKind {
  Work work;
  const char* name;
  double moved;  // elements moved for one of the tensor
  Maker make;
};

at::Tensor some_rows(Pool& pool, int64_t rows, int64_t of) {
  // Spread over the table, each in another place.
  return at::arange(rows, at::TensorOptions().device(pool.device()).dtype(c10::kLong))
      .mul_(7919)
      .remainder_(of);
}

Run run_add(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::Tensor a = pool.take({n}, t), b = pool.take({n}, t);
  return [=] { a.add(b); };
}
// A bias for each row of a narrow tensor; a narrow result added to a wide sum.
Run run_add_mixed(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::Tensor a = pool.take({n / 256, 256}, t);
  const bool half = c10::elementSize(t) == 2;
  const at::Tensor b = half ? pool.take({256}, t) : pool.take({n / 256, 256}, c10::kBFloat16);
  return [=] { a.add(b); };
}
Run run_gelu(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::Tensor a = pool.take({n}, t), b = pool.take({n}, t);
  return [=] { at::gelu_backward(b, a); };
}
Run run_clone(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::Tensor a = pool.take({n}, t);
  return [=] { a.clone(); };
}
Run run_cast(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::Tensor a = pool.take({n}, t);
  const c10::ScalarType to = t == c10::kFloat ? c10::kBFloat16 : c10::kFloat;
  return [=] { a.to(to); };
}
Run run_turn(Pool& pool, int64_t n, c10::ScalarType t) {  // heads of tokens to tokens of heads
  const at::Tensor a = pool.take({n / 512, 8, 64}, t).transpose(0, 1);
  return [=] { a.clone(at::MemoryFormat::Contiguous); };
}
Run run_cat(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::Tensor a = pool.take({n / 192, 64}, t), b = pool.take({n / 192, 64}, t),
                   c = pool.take({n / 192, 64}, t);
  return [=] { at::cat({a, b, c}, 1); };
}
Run run_fill(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::TensorOptions there = at::TensorOptions().device(pool.device()).dtype(t);
  return [=] { at::zeros({n}, there); };
}
Run run_lookup(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::Tensor table = pool.take({4096, 512}, t);
  const at::Tensor rows = some_rows(pool, n / 512, 4096);
  return [=] { at::embedding(table, rows); };
}
// A small table: what it costs to fill a large one with zeros is counted apart.
Run run_embedding_grad(Pool& pool, int64_t n, c10::ScalarType t) {
  constexpr int64_t table = 512;
  const int64_t rows = std::max<int64_t>(1, n / 512);
  const at::Tensor grad = pool.take({rows, 512}, t);
  const at::Tensor index = some_rows(pool, rows, table);
  return [=] { at::embedding_dense_backward(grad, index, table, -1, false); };
}
Run run_index_add(Pool& pool, int64_t n, c10::ScalarType t) {
  const int64_t rows = std::max<int64_t>(1, n / 3 / 512);
  const at::Tensor to = pool.take({rows, 512}, t), from = pool.take({rows, 512}, t);
  const at::Tensor index = some_rows(pool, rows, rows);
  return [=] { to.index_add(0, index, from); };
}
Run run_sort(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::Tensor a = pool.take({n}, t);
  return [=] { at::sort(a); };
}
Run run_scan(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::Tensor a = pool.take({n / 256, 256}, t);
  return [=] { at::cumsum(a, 1); };
}
Run run_mask(Pool& pool, int64_t n, c10::ScalarType t) {
  const at::Tensor a = pool.take({n}, t);
  return [=] { kernels::keep_mask(a, 0.1, random_key(1, "bench"), 0); };
}

// Tensors as a model has them: a few large ones and many small.
std::vector<at::Tensor> pieces(const at::Tensor& flat) {
  std::vector<at::Tensor> list;
  const int64_t n = flat.numel();
  int64_t at = 0;
  while (at < n) {
    const int64_t size = std::min(n - at, std::max<int64_t>(1024, n / 12));
    list.push_back(flat.narrow(0, at, size));
    at += size;
    if (at + 1024 < n) {
      list.push_back(flat.narrow(0, at, 1024));
      at += 1024;
    }
  }
  return list;
}
Run run_adam(Pool& pool, int64_t n, c10::ScalarType t) {
  const auto part = [&] { return pieces(pool.take({n}, t).clone()); };
  const auto p = part(), g = part(), m = part(), v = part();
  std::vector<at::Tensor> steps;
  for (size_t i = 0; i < p.size(); ++i)
    steps.push_back(at::ones({}, p[i].options().dtype(c10::kFloat)));
  for (const auto& list : {m, v})
    for (const at::Tensor& tensor : list) tensor.abs_();
  const kernels::AdamTensors all{p, g, m, v, {}, steps};
  return [=] { kernels::adam(all, {.lr = 1e-9, .beta2 = 0.95}); };
}
Run run_foreach(Pool& pool, int64_t n, c10::ScalarType t) {
  const auto list = pieces(pool.take({n}, t).clone());
  const at::Tensor one = at::ones({}, list[0].options().dtype(c10::kFloat));
  return [=] { at::_foreach_mul_(list, one); };
}
Run run_foreach_norm(Pool& pool, int64_t n, c10::ScalarType t) {
  const auto list = pieces(pool.take({n}, t));
  return [=] { at::_foreach_norm(list, 2); };
}

const std::vector<StreamKind>& stream_kinds() {
  static const std::vector<StreamKind> kinds = {
      {Work::pointwise, "pointwise", 3, run_add},
      {Work::pointwise, "pointwise_mixed", 2.5, run_add_mixed},
      {Work::pointwise, "pointwise_math", 3, run_gelu},
      {Work::copy, "copy", 2, run_clone},
      {Work::copy, "copy_cast", 2, run_cast},
      {Work::copy, "copy_strided", 2, run_turn},
      {Work::copy, "copy_cat", 2, run_cat},
      {Work::fill, "fill", 1, run_fill},
      {Work::lookup, "lookup", 2, run_lookup},
      {Work::scatter, "scatter_embedding", 2, run_embedding_grad},
      {Work::scatter, "scatter", 1, run_index_add},
      {Work::mask, "mask", 0.5, run_mask},
      {Work::scan, "scan", 2, run_scan},
      {Work::sort, "sort", 4, run_sort},
      {Work::update, "update_adam", 7, run_adam},
      {Work::update, "update", 2, run_foreach},
      {Work::update, "update_norm", 1, run_foreach_norm},
  };
  return kinds;
}

Task stream_task(const StreamKind& kind, c10::ScalarType dtype, int64_t bytes) {
  Task task;
  task.work = kind.work;
  task.name = kind.name;
  task.dtype = dtype;
  task.bytes = static_cast<double>(bytes);
  const auto element = static_cast<double>(c10::elementSize(dtype));
  const auto count = static_cast<int64_t>(static_cast<double>(bytes) / element / kind.moved);
  const int64_t whole = std::max<int64_t>(1, count / 3072) * 3072;  // of 192, 256 and 512
  task.prepare = [=, make = kind.make](Pool& pool) {
    return in_turn(pool, static_cast<double>(bytes), [&] { return make(pool, whole, dtype); });
  };
  return task;
}

// Rows of a width: softmax, sums, losses.
using RowMaker = std::function<Run(Pool&, int64_t rows, int64_t width, c10::ScalarType)>;

Run run_softmax(Pool& pool, int64_t rows, int64_t width, c10::ScalarType t) {
  const at::Tensor x = pool.take({rows, width}, t);
  return [=] { at::_softmax(x, 1, false); };
}
Run run_softmax_grad(Pool& pool, int64_t rows, int64_t width, c10::ScalarType t) {
  const at::Tensor g = pool.take({rows, width}, t), y = pool.take({rows, width}, t);
  return [=] { at::_softmax_backward_data(g, y, 1, t); };
}
Run run_sum(Pool& pool, int64_t rows, int64_t width, c10::ScalarType t) {
  const at::Tensor x = pool.take({rows, width}, t);
  return [=] { x.sum(1); };
}
Run run_sum_columns(Pool& pool, int64_t rows, int64_t width, c10::ScalarType t) {
  const at::Tensor x = pool.take({rows, width}, t);
  return [=] { x.sum(0, true); };
}

struct RowKind {
  Work work;
  const char* name;
  double moved;
  RowMaker make;
};

const std::vector<RowKind>& row_kinds() {
  static const std::vector<RowKind> kinds = {
      {Work::softmax, "softmax", 2, run_softmax},
      {Work::softmax_backward, "softmax_backward", 3, run_softmax_grad},
      {Work::reduce, "reduce", 1, run_sum},
      {Work::reduce, "reduce_columns", 1, run_sum_columns},
  };
  return kinds;
}

Task row_task(const RowKind& kind, c10::ScalarType dtype, int64_t rows, int64_t width) {
  Task task;
  task.work = kind.work;
  task.name = kind.name;
  task.dtype = dtype;
  task.bytes =
      kind.moved * static_cast<double>(rows * width) * static_cast<double>(c10::elementSize(dtype));
  task.prepare = [=, make = kind.make, bytes = task.bytes](Pool& pool) {
    return in_turn(pool, bytes, [&] { return make(pool, rows, width, dtype); });
  };
  return task;
}

// Rows of scores over a vocabulary.
Task loss_task(c10::ScalarType dtype, int64_t rows, int64_t classes, bool backward) {
  Task task;
  task.work = backward ? Work::loss_backward : Work::loss;
  task.name = std::string(to_text(task.work));
  task.dtype = dtype;
  task.bytes = (backward ? 2.0 : 1.0) * static_cast<double>(rows * classes) *
               static_cast<double>(c10::elementSize(dtype));
  task.prepare = [=](Pool& pool) -> Run {
    const at::Tensor scores = pool.take({rows, classes}, dtype);
    if (!backward) return [=] { kernels::row_logsumexp(scores); };
    const at::Tensor lse = pool.take({rows}, c10::kFloat), grad = pool.take({rows}, c10::kFloat);
    const at::Tensor target = some_rows(pool, rows, classes);
    return [=] { kernels::cross_entropy_grad(grad, scores, lse, target, 0); };
  };
  return task;
}

bool is_a_dtype(const std::string& name) { return name != "tf32"; }  // moves bytes as fp32 does

}  // namespace

void add_stream_tasks(const TaskOptions& options, std::vector<Task>& tasks) {
  using List = std::vector<int64_t>;
  const List sizes = options.small
                         ? List{1 << 14, 1 << 17}
                         : List{1 << 14, 1 << 18, 1 << 22, 1 << 25, 1 << 28, int64_t{1} << 31};
  for (const std::string& dtype : options.dtypes)
    if (is_a_dtype(dtype))
      for (const StreamKind& kind : stream_kinds())
        for (const int64_t bytes : sizes)
          tasks.push_back(stream_task(kind, task_dtype(dtype), bytes));
}

void add_row_tasks(const TaskOptions& options, std::vector<Task>& tasks) {
  using List = std::vector<int64_t>;
  const List rows = options.small ? List{64} : List{1024, 16384, 262144};
  const List widths = options.small ? List{32} : List{64, 192, 768, 3072, 12288};
  for (const std::string& dtype : options.dtypes) {
    if (!is_a_dtype(dtype)) continue;
    for (const RowKind& kind : row_kinds())
      for (const int64_t count : rows)
        for (const int64_t width : widths)
          tasks.push_back(row_task(kind, task_dtype(dtype), count, width));
    for (const int64_t count : options.small ? List{32} : List{1024, 8192, 16384})
      for (const int64_t classes : options.small ? List{100} : List{256, 16384, 65536, 131072})
        for (const bool backward : {false, true})
          tasks.push_back(loss_task(task_dtype(dtype), count, classes, backward));
  }
}

}  // namespace braid::plan
