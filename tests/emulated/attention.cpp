// SPDX-License-Identifier: BSD-3-Clause
// torch's fused attention of a CUDA device by plain operators, so that models with attention train
// on the emulated one. Heads of k and v may serve several of q. No dropout: braid draws its own.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/ones.h>
#include <torch/library.h>

#include <cmath>
#include <limits>
#include <optional>
#include <tuple>

namespace braid::emulated {
namespace {

// [B, heads of k, heads of q for each, N, D], in fp32 at least.
at::Tensor in_groups(const at::Tensor& x, int64_t heads) {
  const auto dtype = x.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  return x.to(dtype).reshape({x.size(0), heads, x.size(1) / heads, x.size(2), x.size(3)});
}

struct Attention {
  at::Tensor q, k, v;
  double scale;
  bool causal;

  Attention(const at::Tensor& given_q, const at::Tensor& given_k, const at::Tensor& given_v,
            std::optional<double> given_scale, bool is_causal)
      : q(in_groups(given_q, given_k.size(1))),
        k(in_groups(given_k, given_k.size(1))),
        v(in_groups(given_v, given_k.size(1))),
        scale(given_scale.value_or(1 / std::sqrt(static_cast<double>(given_q.size(3))))),
        causal(is_causal) {}

  at::Tensor scores() const {
    at::Tensor all = at::matmul(q, k.transpose(-2, -1)).mul_(scale);
    if (causal)
      all.masked_fill_(at::ones({q.size(3), k.size(3)}, q.options().dtype(at::kBool)).triu_(1),
                       -std::numeric_limits<double>::infinity());
    return all;
  }
};

struct Attended {
  at::Tensor out, log_sum;
};
Attended attend(const Attention& of, const at::Tensor& like) {
  const at::Tensor scores = of.scores(), log_sum = scores.logsumexp({-1});
  const at::Tensor weights = scores.sub(log_sum.unsqueeze(-1)).exp_();
  return {at::matmul(weights, of.v).reshape(like.sizes()).to(like.scalar_type()),
          log_sum.reshape({like.size(0), like.size(1), like.size(2)})};
}

using Grads = std::tuple<at::Tensor, at::Tensor, at::Tensor>;
Grads attention_grads(const Attention& of, const at::Tensor& grad, const at::Tensor& out,
                      const at::Tensor& log_sum, const at::Tensor& like_k) {
  const int64_t heads = like_k.size(1);
  const at::Tensor wide = in_groups(grad, heads), value = in_groups(out, heads);
  const at::Tensor scores = of.scores();
  const at::Tensor weights =
      scores.sub(log_sum.reshape(scores.sizes().slice(0, 4)).unsqueeze(-1)).exp_();
  const at::Tensor level = wide.mul(value).sum({-1}, /*keepdim=*/true);
  const at::Tensor of_scores =
      at::matmul(wide, of.v.transpose(-2, -1)).sub_(level).mul_(weights).mul_(of.scale);
  const auto summed = [&](const at::Tensor& x) {
    return x.sum({2}).to(like_k.scalar_type());  // over the heads of q
  };
  return {at::matmul(of_scores, of.k).reshape(grad.sizes()).to(grad.scalar_type()),
          summed(at::matmul(of_scores.transpose(-2, -1), of.q)),
          summed(at::matmul(weights.transpose(-2, -1), wide))};
}

at::Tensor no_seed(const at::Tensor& like) {
  return at::empty({2}, like.options().dtype(at::kLong)).zero_();
}

using Flash = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, c10::SymInt, c10::SymInt,
                         at::Tensor, at::Tensor, at::Tensor>;
Flash flash(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, double, bool causal,
            bool, std::optional<double> scale) {
  const auto [out, log_sum] = attend({q, k, v, scale, causal}, q);
  return {out, log_sum, {}, {}, q.sym_size(2), k.sym_size(2), no_seed(q), no_seed(q), {}};
}
Grads flash_grads(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                  const at::Tensor& v, const at::Tensor& out, const at::Tensor& log_sum,
                  const at::Tensor&, const at::Tensor&, c10::SymInt, c10::SymInt, double,
                  bool causal, const at::Tensor&, const at::Tensor&, std::optional<double> scale) {
  return attention_grads({q, k, v, scale, causal}, grad, out, log_sum, k);
}

using Efficient = std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor>;
Efficient efficient(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v,
                    const std::optional<at::Tensor>&, bool, double, bool causal,
                    std::optional<double> scale) {
  const auto [out, log_sum] = attend({q, k, v, scale, causal}, q);
  return {out, log_sum, no_seed(q), no_seed(q)};
}
Efficient efficient_grads(const at::Tensor& grad, const at::Tensor& q, const at::Tensor& k,
                          const at::Tensor& v, const at::Tensor&, const at::Tensor& out,
                          const at::Tensor& log_sum, const at::Tensor&, const at::Tensor&, double,
                          std::array<bool, 4>, bool causal, std::optional<double> scale) {
  const auto [of_q, of_k, of_v] = attention_grads({q, k, v, scale, causal}, grad, out, log_sum, k);
  return {of_q, of_k, of_v, {}};
}

TORCH_LIBRARY_IMPL(aten, CUDA, library) {
  library.impl("_scaled_dot_product_flash_attention", &flash);
  library.impl("_scaled_dot_product_flash_attention_backward", &flash_grads);
  library.impl("_scaled_dot_product_efficient_attention", &efficient);
  library.impl("_scaled_dot_product_efficient_attention_backward", &efficient_grads);
}

}  // namespace
}  // namespace braid::emulated
