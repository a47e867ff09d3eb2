// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/divergence.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <map>
#include <utility>

#include "braid/core/dry.h"
#include "braid/core/error.h"
#include "parallel/divergence_sum.h"
#include "parallel/replica_groups.h"

namespace braid::parallel {
namespace {

// Ranks of the world that hold one and the same value of a parameter.
using Camp = std::vector<int>;

// The largest first; of two equally large ones the one with the lowest rank.
std::vector<Camp> camps_of(const int64_t* sums, int64_t stride, const std::vector<int>& ranks) {
  std::map<int64_t, Camp> by_value;
  for (size_t i = 0; i < ranks.size(); ++i)
    by_value[sums[static_cast<int64_t>(i) * stride]].push_back(ranks[i]);
  std::vector<Camp> camps;
  for (auto& [value, camp] : by_value) camps.push_back(std::move(camp));
  std::sort(camps.begin(), camps.end(), [](const Camp& a, const Camp& b) {
    return a.size() != b.size() ? a.size() > b.size() : a.front() < b.front();
  });
  return camps;
}

std::string camp_text(const Camp& camp) {
  return fmt::format("rank{} {}", camp.size() == 1 ? "" : "s", fmt::join(camp, ", "));
}

// "p on rank 2 is not what ranks 0, 1, 3 have"
std::string difference(const std::string& name, const std::vector<Camp>& camps) {
  Camp others;
  for (size_t i = 1; i < camps.size(); ++i)
    others.insert(others.end(), camps[i].begin(), camps[i].end());
  std::sort(others.begin(), others.end());
  return fmt::format("{} on {} is not what {} ha{}", name, camp_text(others),
                     camp_text(camps.front()), camps.front().size() == 1 ? "s" : "ve");
}

// One value for all ranks: the largest equals the smallest. ~x turns the order of x around.
bool agree(const at::Tensor& sums, const comm::Group& replicas) {
  const at::Tensor whole = combined_checksum(sums);
  const at::Tensor bounds = at::stack({whole, whole.bitwise_not()});
  replicas.all_reduce(bounds, comm::Op::max).wait();
  if (!has_data(bounds)) return true;
  const at::Tensor host = bounds.cpu();
  const int64_t* values = host.const_data_ptr<int64_t>();
  return values[0] == ~values[1];
}

// Weights may lie on the host while the ranks talk through their GPUs.
at::Tensor on_wire(const at::Tensor& sums, const comm::Group& replicas) {
  const bool gpu = replicas.backend() != nullptr && replicas.backend()->name() == "nccl";
  return gpu && sums.is_cpu() ? sums.to(c10::kCUDA) : sums;
}

}  // namespace

void describe(Fields& fields, DivergenceOptions& o) {
  fields.field("every", o.every, "steps between two comparisons of the replicas' weights; 0: never",
               {.at_least = 0});
}

at::Tensor checksums(const std::vector<Param>& params) {
  const at::NoGradGuard no_grad;
  const auto count = static_cast<int64_t>(params.size());
  if (params.empty()) return at::empty({0}, c10::kLong);
  if (!params.front().tensor.is_cpu()) {
    std::vector<at::Tensor> sums;
    for (const Param& param : params) sums.push_back(device_checksum(param.tensor));
    return at::stack(sums);
  }
  at::Tensor sums = at::empty({count}, params.front().tensor.options().dtype(c10::kLong));
  if (!has_data(sums)) return sums;
  for (int64_t i = 0; i < count; ++i)
    sums.mutable_data_ptr<int64_t>()[i] =
        static_cast<int64_t>(host_checksum(params[static_cast<size_t>(i)].tensor));
  return sums;
}

Divergence::Divergence(std::vector<Param> params, comm::Group replicas, DivergenceOptions options)
    : Divergence(std::move(params), one_group(replicas), options) {}

Divergence::Divergence(std::vector<Param> params, const ReplicasOf& replicas,
                       DivergenceOptions options)
    : options_(options) {
  ReplicaGroups groups(replicas);
  for (Param& param : params) {
    const size_t number = groups.number_of(param);
    if (number == parts_.size()) parts_.push_back({groups.at(number), {}});
    parts_[number].params.push_back(std::move(param));
  }
  std::erase_if(parts_, [](const Alike& part) { return part.replicas.size() == 1; });
}

void Divergence::step(int64_t step) {
  if (options_.every > 0 && step % options_.every == 0) check(step);
}

// All groups have compared before one reports: the ranks of the next one would wait for those that
// have thrown.
void Divergence::check(int64_t step) {
  const at::NoGradGuard no_grad;
  const Alike* apart = nullptr;
  at::Tensor its_sums;
  for (const Alike& part : parts_) {
    const at::Tensor sums = on_wire(checksums(part.params), part.replicas);
    if (agree(sums, part.replicas) || apart != nullptr) continue;
    apart = &part;
    its_sums = sums;
  }
  if (apart != nullptr) report(*apart, its_sums, step);
  if (!parts_.empty()) agreed_ = step;
}

void Divergence::report(const Alike& part, const at::Tensor& sums, int64_t step) const {
  const comm::Group& replicas = part.replicas;
  const auto count = static_cast<int64_t>(part.params.size());
  const at::Tensor all = at::empty({replicas.size(), count}, sums.options());
  replicas.all_gather(all, sums).wait();
  const at::Tensor host = all.cpu();
  std::string first;
  int64_t differ = 0;
  for (int64_t i = 0; i < count; ++i) {
    const auto camps = camps_of(host.const_data_ptr<int64_t>() + i, count, replicas.ranks());
    if (camps.size() == 1) continue;
    if (++differ == 1) first = difference(part.params[static_cast<size_t>(i)].name, camps);
  }
  throw CommError(
      {.what = fmt::format("replicas differ at step {}: {} ({} of {} parameters{})", step, first,
                           differ, count,
                           agreed_ < 0 ? "" : fmt::format("; all were alike at step {}", agreed_)),
       .why = "replicas start alike and make the same updates, so their weights are equal to the "
              "last bit",
       .fix = "look for what only some ranks do: an own random draw, a gradient that is not "
              "summed, faulty memory; then resume from the last checkpoint"});
}

}  // namespace braid::parallel
