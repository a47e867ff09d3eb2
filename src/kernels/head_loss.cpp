// SPDX-License-Identifier: BSD-3-Clause
#include "braid/kernels/head_loss.h"

#include <ATen/Dispatch.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "braid/core/in_parts.h"
#include "kernels/dtype.h"
#include "kernels/meta.h"
#include "kernels/wide_exp.h"

namespace braid::kernels {
namespace {

// Maximum and log of the sum of exponentials, then the gradient, where the scores stand.
template <class T>
WideOf<T> entropy_of_row(T* row, int64_t classes, int64_t target, WideOf<T> weight) {
  using W = WideOf<T>;
  const bool here = target >= 0 && target < classes;
  const W score = here ? static_cast<W>(row[target]) : W(0);
  W log_sum = 0;
  widest([&] {
    const W top = largest_along(classes, static_cast<W>(row[0]),
                                [&](int64_t i) { return static_cast<W>(row[i]); });
    const W sum =
        sum_along<W>(classes, [&](int64_t i) { return exponential(static_cast<W>(row[i]) - top); });
    log_sum = top + std::log(sum);
    along(classes, [&](int64_t i) {
      row[i] = static_cast<T>(exponential(static_cast<W>(row[i]) - log_sum) * weight);
    });
  });
  if (here) row[target] = static_cast<T>((std::exp(score - log_sum) - 1) * weight);
  return log_sum - score;
}

void entropy_in_place_cpu(const at::Tensor& scores, const at::Tensor& losses,
                          const at::Tensor& target, const at::Tensor& weight, int64_t ignored) {
  const int64_t classes = scores.size(1);
  const int64_t grain = std::max<int64_t>(1, (1 << 14) / std::max<int64_t>(1, classes));
  const auto* wanted = target.const_data_ptr<int64_t>();
  AT_DISPATCH_FLOATING_TYPES_AND2(
      c10::kHalf, c10::kBFloat16, scores.scalar_type(), "cross_entropy_in_place", [&] {
        using Wide = WideOf<scalar_t>;
        auto* all = static_cast<scalar_t*>(scores.mutable_data_ptr());
        auto* out = losses.mutable_data_ptr<Wide>();
        const Wide each = *weight.const_data_ptr<Wide>();
        in_parts(scores.size(0), grain, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) {
            scalar_t* row = all + i * scores.stride(0);
            const bool counts = wanted[i] != ignored;
            if (!counts) std::fill(row, row + classes, scalar_t(0));
            out[i] = counts ? entropy_of_row(row, classes, wanted[i], each) : Wide(0);
          }
        });
      });
}

void entropy_in_place_meta(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                           const at::Tensor&, int64_t) {}

// x is a fresh gradient: its elements lie together.
void scale_in_place_cpu(const at::Tensor& x, const at::Tensor& factor) {
  AT_DISPATCH_FLOATING_TYPES_AND2(
      c10::kHalf, c10::kBFloat16, x.scalar_type(), "scale_in_place", [&] {
        using Wide = WideOf<scalar_t>;
        const Wide by = *factor.const_data_ptr<Wide>();
        if (by == 1) return;
        auto* all = static_cast<scalar_t*>(x.mutable_data_ptr());
        in_parts(x.numel(), 1 << 15, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i)
            all[i] = static_cast<scalar_t>(static_cast<Wide>(all[i]) * by);
        });
      });
}

void scale_in_place_meta(const at::Tensor&, const at::Tensor&) {}

// A product of 16-bit factors into fp32, which torch's Meta kernels do not know in C++.
at::Tensor& wide_mm_meta(const at::Tensor&, const at::Tensor&, c10::ScalarType, at::Tensor& out) {
  return out;
}
at::Tensor& wide_addmm_meta(const at::Tensor&, const at::Tensor&, const at::Tensor&,
                            c10::ScalarType, const at::Scalar&, const at::Scalar&,
                            at::Tensor& out) {
  return out;
}

TORCH_LIBRARY_FRAGMENT(braid, library) {
  library.def(
      "cross_entropy_in_place(Tensor(a!) scores, Tensor(b!) losses, Tensor target, Tensor weight, "
      "int ignored) -> ()");
  library.def("scale_in_place(Tensor(a!) x, Tensor factor) -> ()");
}
TORCH_LIBRARY_IMPL(braid, CPU, library) {
  library.impl("cross_entropy_in_place", &entropy_in_place_cpu);
  library.impl("scale_in_place", &scale_in_place_cpu);
}
TORCH_LIBRARY_IMPL(braid, Meta, library) {
  library.impl("cross_entropy_in_place", &entropy_in_place_meta);
  library.impl("scale_in_place", &scale_in_place_meta);
}
TORCH_LIBRARY_IMPL(aten, Meta, library) {
  library.impl("mm.dtype_out", &wide_mm_meta);
  library.impl("addmm.dtype_out", &wide_addmm_meta);
}

// sum (+)= a b
void add_product(at::Tensor& sum, const at::Tensor& a, const at::Tensor& b, bool first) {
  const c10::ScalarType dtype = sum.scalar_type();
  if (dtype == a.scalar_type()) {
    first ? at::mm_out(sum, a, b) : sum.addmm_(a, b);
  } else if (sum.is_cuda()) {
    first ? at::mm_out(sum, a, b, dtype) : at::addmm_out(sum, sum, a, b, dtype);
  } else {
    first ? sum.copy_(at::mm(a, b)) : sum.add_(at::mm(a, b));
  }
}

// Rows of 128 bytes on a GPU: products and kernels read 16 bytes at a time.
int64_t score_stride(const at::Tensor& x, int64_t classes) {
  return x.is_cuda() ? rounded_up(classes, 128 / x.element_size()) : classes;
}

// How many classes the products have. Where a row of scores is no multiple of 16 bytes (GPT-2 has
// 50257 words) tensor cores would get slow kernels: classes of zeros fill it up.
int64_t multiplied_classes(const at::Tensor& x, int64_t classes) {
  const bool whole = classes * x.element_size() % 16 == 0;
  return whole ? classes : score_stride(x, classes);
}

at::Tensor factor_of(const at::Tensor& weight, const at::Tensor& x) {
  const int64_t classes = weight.size(0), all = multiplied_classes(x, classes);
  if (all == classes) return weight.to(x.scalar_type());
  const at::Tensor factor = at::empty({all, weight.size(1)}, x.options());
  factor.narrow(0, 0, classes).copy_(weight);
  factor.narrow(0, classes, all - classes).zero_();
  return factor;
}

struct HeadGradients {
  at::Tensor losses, x, weight;
};

struct HeadWants {
  bool x = false, weight = false;
};

HeadGradients head_gradients(const at::Tensor& x, const at::Tensor& weight,
                             const at::Tensor& target, const at::Tensor& row_weight,
                             const HeadLossOptions& options, HeadWants wants) {
  const int64_t rows = x.size(0), classes = weight.size(0);
  const int64_t most = options.rows > 0 ? options.rows : head_rows(rows, classes, x.element_size());
  const at::Tensor factor = factor_of(weight, x);
  HeadGradients all;
  all.losses = at::empty({rows}, row_weight.options());
  if (wants.x) all.x = at::empty(x.sizes(), x.options());
  at::Tensor to_weight;  // of all classes that are multiplied
  if (wants.weight)
    to_weight = rows == 0 ? at::zeros(factor.sizes(), weight.options())
                          : at::empty(factor.sizes(), weight.options());
  const at::Tensor memory =
      at::empty({std::min(most, rows), score_stride(x, classes)}, x.options());
  for (int64_t begin = 0; begin < rows; begin += most) {
    const int64_t count = std::min(most, rows - begin);
    const auto part = [&](const at::Tensor& of) { return of.narrow(0, begin, count); };
    at::Tensor products = memory.narrow(0, 0, count).narrow(1, 0, factor.size(0));
    const at::Tensor scores = products.narrow(1, 0, classes);
    at::mm_out(products, part(x), factor.t());  // zero behind the scores, and so are gradients
    cross_entropy_in_place(scores, part(all.losses), part(target), row_weight, options.ignored);
    if (wants.x) {
      at::Tensor out = part(all.x);
      at::mm_out(out, products, factor);
    }
    if (wants.weight) add_product(to_weight, products.t(), part(x), begin == 0);
  }
  if (wants.weight) all.weight = to_weight.narrow(0, 0, classes);
  return all;
}

at::Tensor expected_gradient(const at::Tensor& x, const at::Tensor& target,
                             const HeadLossOptions& options) {
  const auto wide = x.options().dtype(accumulate_dtype(x.scalar_type()));
  const at::Tensor scale =
      options.scale.defined() ? options.scale.to(wide.dtype().toScalarType()) : at::ones({}, wide);
  return scale.div(target.ne(options.ignored).sum().clamp_min(1));
}

// The gradients wait beside autograd's saved variables, not among them: they are wanted at once,
// and must come back as they are.
struct HeadLoss : torch::autograd::Function<HeadLoss> {
  static at::Tensor forward(torch::autograd::AutogradContext* context, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& target,
                            const HeadLossOptions& options, HeadWants wants) {
    const at::Tensor expected = expected_gradient(x, target, options);
    HeadGradients all =
        head_gradients(x.detach(), weight.detach(), target, expected, options, wants);
    context->saved_data["expected"] = expected;
    if (all.x.defined()) context->saved_data["x"] = std::move(all.x);
    if (all.weight.defined()) context->saved_data["weight"] = std::move(all.weight);
    return all.losses.sum();
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list grads) {
    auto saved = std::move(context->saved_data);
    context->saved_data.clear();
    TORCH_CHECK(saved.count("expected") > 0, "head_loss: its gradients are given once");
    const at::Tensor factor = grads[0].div(saved["expected"].toTensor());
    torch::autograd::variable_list result(5);
    const auto give = [&](const char* name, at::Tensor& to) {
      const auto found = saved.find(name);
      if (found == saved.end()) return;
      to = found->second.toTensor();
      saved.erase(name);
      scale_in_place(to, factor.to(accumulate_dtype(to.scalar_type())));
    };
    give("x", result[0]);
    give("weight", result[1]);
    return result;
  }
};

}  // namespace

int64_t head_rows(int64_t rows, int64_t classes, int64_t element_bytes) {
  constexpr int64_t most_bytes = int64_t{1638} << 20;
  int64_t fit = int64_t{1} << 16;
  while (fit > 128 && fit * classes * element_bytes > most_bytes) fit /= 2;
  const int64_t chunks = std::max<int64_t>(1, (rows + fit - 1) / fit);
  return std::max<int64_t>(1, std::min(rows, rounded_up((rows + chunks - 1) / chunks, 128)));
}

void cross_entropy_in_place(const at::Tensor& scores, const at::Tensor& losses,
                            const at::Tensor& target, const at::Tensor& weight, int64_t ignored) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::cross_entropy_in_place", "")
                             .typed<decltype(entropy_in_place_cpu)>();
  op.call(scores, losses, target, weight, ignored);
}

void scale_in_place(const at::Tensor& x, const at::Tensor& factor) {
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow("braid::scale_in_place", "")
                             .typed<decltype(scale_in_place_cpu)>();
  op.call(x, factor);
}

at::Tensor head_loss(const at::Tensor& x, const at::Tensor& weight, const at::Tensor& target,
                     const HeadLossOptions& options) {
  const bool on = c10::GradMode::is_enabled();
  const HeadWants wants{on && x.requires_grad(), on && weight.requires_grad()};
  return HeadLoss::apply(x.contiguous(), weight, target.contiguous(), options, wants);
}

}  // namespace braid::kernels
