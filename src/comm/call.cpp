// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "braid/comm/backend.h"

namespace braid::comm {
namespace {

std::string shape_text(const at::Tensor& tensor) {
  return fmt::format("[{}]", fmt::join(tensor.sizes(), ", "));
}

bool reduces(Kind kind) { return kind == Kind::all_reduce || kind == Kind::reduce_scatter; }

std::string_view peer_word(Kind kind) {
  return kind == Kind::send ? "to" : "from";  // a root and a sender give, a receiver takes
}

class Finished final : public Work {
 public:
  void wait() override {}
  bool done() const override { return true; }
};

}  // namespace

std::string_view to_text(Kind kind) {
  static constexpr std::array<std::string_view, kinds> names = {
      "all_reduce", "reduce_scatter", "all_gather", "broadcast",
      "all_to_all", "send",           "recv",       "barrier"};
  return names[static_cast<size_t>(kind)];
}

std::string_view to_text(Op op) {
  static constexpr std::array<std::string_view, 4> names = {"sum", "mean", "max", "min"};
  return names[static_cast<size_t>(op)];
}

std::string to_text(const Call& call) {
  std::string text(to_text(call.kind));
  if (reduces(call.kind)) text += fmt::format(" {}", to_text(call.op));
  const at::Tensor& first = call.input.defined() ? call.input : call.output;
  if (first.defined())
    text += fmt::format(" {} {}", c10::toString(first.scalar_type()), shape_text(first));
  if (call.input.defined() && call.output.defined() && !call.input.is_same(call.output))
    text += fmt::format(" -> {}", shape_text(call.output));
  if (!call.input_counts.empty())
    text += fmt::format(", giving [{}]", fmt::join(call.input_counts, ", "));
  if (!call.output_counts.empty())
    text += fmt::format(", taking [{}]", fmt::join(call.output_counts, ", "));
  if (call.peer >= 0) text += fmt::format(" {} rank {}", peer_word(call.kind), call.peer);
  if (call.tag != 0) text += fmt::format(", tag {}", call.tag);
  return text;
}

int64_t bytes_of(const Call& call) {
  const auto bytes = [](const at::Tensor& tensor) {
    return tensor.defined() ? static_cast<int64_t>(tensor.nbytes()) : 0;
  };
  return std::max(bytes(call.input), bytes(call.output));
}

std::unique_ptr<Work> finished() { return std::make_unique<Finished>(); }

}  // namespace braid::comm
