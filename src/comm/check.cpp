// SPDX-License-Identifier: BSD-3-Clause
#include "comm/check.h"

#include <ATen/MemoryOverlap.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <numeric>

#include "braid/core/error.h"

namespace braid::comm {
namespace {

struct Rule {
  std::string why, fix;
};

[[noreturn]] void refuse(const Call& call, const Place& place, Rule rule) {
  throw InternalError({.what = fmt::format("{} in group {} of {} ranks, on rank {}", to_text(call),
                                           place.group, place.size, place.rank),
                       .why = std::move(rule.why),
                       .fix = std::move(rule.fix)});
}

void check_tensors(const Call& call, const Place& place) {
  if (call.kind == Kind::barrier) return;
  const bool gives = call.kind != Kind::recv, takes = call.kind != Kind::send;
  if ((gives && !call.input.defined()) || (takes && !call.output.defined()))
    refuse(call, place, {"a tensor of the call is undefined", "give it a value before the call"});
  if (gives && takes && call.input.scalar_type() != call.output.scalar_type())
    refuse(call, place,
           {fmt::format("input is {} and output is {}", c10::toString(call.input.scalar_type()),
                        c10::toString(call.output.scalar_type())),
            "convert one of them: a collective moves values and does not convert them"});
  if (gives && takes && call.input.device() != call.output.device())
    refuse(call, place,
           {fmt::format("input is on {} and output on {}", call.input.device().str(),
                        call.output.device().str()),
            "move them to one device"});
  if (takes && at::has_internal_overlap(call.output) == at::MemOverlap::Yes)
    refuse(call, place,
           {"the output is expanded: several of its elements share one place in memory",
            "give it memory of its own with .contiguous()"});
}

void check_peer(const Call& call, const Place& place) {
  const bool message = call.kind == Kind::send || call.kind == Kind::recv;
  if (!message && call.kind != Kind::broadcast) return;
  if (call.peer < 0 || call.peer >= place.size)
    refuse(call, place,
           {fmt::format("rank {} is not in the group", call.peer),
            fmt::format("give a rank of 0 .. {}, as numbered in this group", place.size - 1)});
  if (message && call.peer == place.rank)
    refuse(call, place, {"a rank does not send to itself", "copy the tensor"});
  if (message && call.tag < 0)
    refuse(call, place, {"a tag is not negative", "number the tags from 0"});
}

void check_mean(const Call& call, const Place& place) {
  const bool reduces = call.kind == Kind::all_reduce || call.kind == Kind::reduce_scatter;
  if (reduces && call.op == Op::mean && !call.input.is_floating_point() && !call.input.is_complex())
    refuse(call, place,
           {"the mean of whole numbers is none", "add them with Op::sum, or convert them first"});
}

void check_shares(const Call& call, const Place& place, const at::Tensor& whole,
                  const at::Tensor& share) {
  if (whole.numel() == share.numel() * place.size) return;
  refuse(call, place,
         {fmt::format("the whole has {} elements, not {} ranks times {}", whole.numel(), place.size,
                      share.numel()),
          "give equal shares (pad the tensor), or pass the rows of each rank as counts"});
}

// `tensor` has as many rows as `counts` add up to.
void check_counts(const Call& call, const Place& place, const at::Tensor& tensor,
                  const std::vector<int64_t>& counts) {
  const int64_t rows = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  const bool negative = std::any_of(counts.begin(), counts.end(), [](int64_t n) { return n < 0; });
  if (static_cast<int>(counts.size()) == place.size && !negative && tensor.dim() > 0 &&
      tensor.size(0) == rows)
    return;
  refuse(call, place,
         {fmt::format("counts [{}] do not share out the rows of [{}]", fmt::join(counts, ", "),
                      fmt::join(tensor.sizes(), ", ")),
          "give one count a rank, adding up to the size of dim 0"});
}

void check_rows(const Call& call, const Place& place, const at::Tensor& share, int64_t rows) {
  const at::Tensor& whole = share.is_same(call.input) ? call.output : call.input;
  const bool same = share.dim() > 0 && share.dim() == whole.dim() &&
                    share.sizes().slice(1) == whole.sizes().slice(1);
  if (same && share.size(0) == rows) return;
  refuse(call, place,
         {fmt::format("this rank's share has {} rows by the counts, but [{}] was given for it",
                      rows, fmt::join(share.sizes(), ", ")),
          "make the share [rows, ...] with the other sizes of the whole"});
}

void check_sizes(const Call& call, const Place& place) {
  const auto mine = static_cast<size_t>(place.rank);
  if (call.kind == Kind::all_gather) {
    if (call.output_counts.empty()) return check_shares(call, place, call.output, call.input);
    check_counts(call, place, call.output, call.output_counts);
    check_rows(call, place, call.input, call.output_counts[mine]);
  } else if (call.kind == Kind::reduce_scatter) {
    if (call.input_counts.empty()) return check_shares(call, place, call.input, call.output);
    check_counts(call, place, call.input, call.input_counts);
    check_rows(call, place, call.output, call.input_counts[mine]);
  } else if (call.kind == Kind::all_to_all) {
    if (call.input_counts.empty() && call.output_counts.empty()) {
      if (call.input.numel() == call.output.numel() && call.input.numel() % place.size == 0) return;
      refuse(call, place,
             {"input and output need one number of elements, a multiple of the ranks",
              "pad the tensors, or pass the rows for each rank as counts"});
    }
    check_counts(call, place, call.input, call.input_counts);
    check_counts(call, place, call.output, call.output_counts);
    check_rows(call, place, call.input, call.input.size(0));  // the same sizes behind dim 0
  }
}

}  // namespace

void check(const Call& call, const Place& place) {
  check_tensors(call, place);
  check_peer(call, place);
  check_mean(call, place);
  check_sizes(call, place);
}

}  // namespace braid::comm
