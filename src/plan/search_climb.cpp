// SPDX-License-Identifier: BSD-3-Clause
#include "plan/search_climb.h"

#include <algorithm>
#include <array>

namespace braid::plan {
namespace {

using memory::Again;
using parallel::MeshOptions;

// The axes as plain numbers: data, shard, tensor, context, pipeline, expert.
using AxisSizes = std::array<int64_t, 6>;
constexpr size_t of_data = 0, of_shard = 1;

AxisSizes sizes_of(const MeshOptions& mesh) {
  return {*mesh.data, *mesh.shard, mesh.tensor, mesh.context, mesh.pipeline, mesh.expert};
}

MeshOptions mesh_of(const AxisSizes& sizes, MeshOptions mesh) {
  mesh.data = sizes[of_data], mesh.shard = sizes[of_shard];
  mesh.tensor = sizes[2], mesh.context = sizes[3], mesh.pipeline = sizes[4], mesh.expert = sizes[5];
  return mesh;
}

std::vector<int64_t> prime_factors(int64_t number) {
  std::vector<int64_t> primes;
  for (int64_t prime = 2; number > 1; ++prime)
    if (number % prime == 0) {
      primes.push_back(prime);
      while (number % prime == 0) number /= prime;
    }
  return primes;
}

// What another mesh leaves of it: a micro-batch divides the rows of a rank, only pieces are of a
// stage of ZeRO.
Choice settled_in(Choice choice, const Base& base) {
  const int64_t rows = std::max<int64_t>(rows_of(choice, base), 1);
  while (rows % choice.micro_batch != 0) --choice.micro_batch;
  if (choice.mesh.pipeline == 1) choice.schedule = base.options.parallel.schedule;
  return choice;
}

class Neighbours {
 public:
  Neighbours(const Choice& at, const Request& request, const Base& base)
      : at_(at), request_(request), base_(base) {}

  std::vector<Choice> all() {
    other_micro_batch();
    other_recompute();
    other_stage();
    other_mesh();
    other_schedule();
    other_offload();
    return std::move(all_);
  }

 private:
  void other_recompute() {
    Choice other = at_;
    for (const Again again : recompute_levels(base_.options, base_.blocks))
      if (other.recompute = again; again != at_.recompute) all_.push_back(other);
  }

  void other_micro_batch() {
    const std::vector<int64_t> micros = divisors(rows_of(at_, base_));
    const auto here = std::ranges::find(micros, at_.micro_batch);
    Choice other = at_;
    if (here != micros.end() && here + 1 != micros.end())
      other.micro_batch = *(here + 1), all_.push_back(other);
    if (here != micros.begin()) other.micro_batch = *(here - 1), all_.push_back(other);
  }

  // Replicas become pieces and the other way round.
  void other_stage() {
    const int64_t ranks = *at_.mesh.data * *at_.mesh.shard;
    for (int64_t zero = 0; zero <= 3; ++zero) {
      if (zero == at_.zero) continue;
      Choice other = at_;
      other.zero = zero;
      if (zero == 0) other.mesh.data = ranks, other.mesh.shard = 1;
      if (at_.zero == 0) other.mesh.data = 1, other.mesh.shard = ranks;
      all_.push_back(other);
    }
  }

  void other_mesh() {
    const AxisSizes sizes = sizes_of(at_.mesh);
    for (size_t from = 0; from < sizes.size(); ++from)
      for (const int64_t factor : prime_factors(sizes[from]))
        for (size_t to = 0; to < sizes.size(); ++to) {
          if (to == from || (to == of_shard && at_.zero == 0)) continue;
          AxisSizes moved = sizes;
          moved[from] /= factor, moved[to] *= factor;
          Choice other = at_;
          other.mesh = mesh_of(moved, at_.mesh);
          all_.push_back(settled_in(other, base_));
        }
  }

  void other_schedule() {
    if (at_.mesh.pipeline == 1) return;
    Choice other = at_;
    for (const parallel::ScheduleKind kind : schedules_for(base_.options))
      if (other.schedule = kind; kind != at_.schedule) all_.push_back(other);
  }

  void other_offload() {
    Choice other = at_;
    for (const auto& offload : offloads_for(request_, at_.zero))
      if (other.offload = offload; offload != at_.offload) all_.push_back(other);
  }

  const Choice& at_;
  const Request& request_;
  const Base& base_;
  std::vector<Choice> all_;
};

}  // namespace

std::vector<Choice> starts_of(const Request& request, const Base& base) {
  const auto largest_divisor = [](int64_t number, int64_t most) {
    while (number % most != 0) --most;
    return most;
  };
  const int64_t node = largest_divisor(request.gpus, request.cluster.gpus_per_node);
  const int64_t stages = largest_divisor(request.gpus / node, 8);
  std::vector<Choice> starts;
  for (const int64_t pipeline : {int64_t{1}, stages})
    for (const int64_t tensor : {int64_t{1}, node}) {
      const int64_t rest = request.gpus / (pipeline * tensor);
      Choice start;
      start.mesh = mesh_of({1, rest, tensor, 1, pipeline, 1}, base.options.mesh);
      start.zero = rest == 1 ? 0 : pipeline == 1 ? 3 : 1;
      if (base.blocks > 0) start.recompute = Again::blocks;
      start.precision = request.precisions.empty() ? "" : request.precisions.front();
      start.offload = offloads_for(request, start.zero).front();
      start.schedule = base.options.parallel.schedule;
      starts.push_back(start);
    }
  return starts;
}

std::vector<Choice> neighbours_of(const Choice& choice, const Request& request, const Base& base) {
  return Neighbours(choice, request, base).all();
}

}  // namespace braid::plan
