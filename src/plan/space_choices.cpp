// SPDX-License-Identifier: BSD-3-Clause
// All choices of a request, one after the other.
#include <algorithm>

#include "plan/space.h"

namespace braid::plan {
namespace {

using parallel::ScheduleKind;

int64_t stages_with(const train::RunOptions& options, const parallel::MeshOptions& mesh,
                    ScheduleKind kind) {
  Choice choice;
  choice.mesh = mesh;
  choice.schedule = kind;
  return mesh.pipeline * apply(options, choice).parallel.chunks;
}

class Enumeration {
 public:
  Enumeration(const Request& request, const Base& base) : request_(request), base_(base) {
    precisions_ = request.precisions;
    if (precisions_.empty()) precisions_ = {std::string()};  // the config's
  }

  void add(const Arrangement& place) {
    for (const ScheduleKind schedule : schedules(place.mesh))
      for (const std::string& precision : precisions_) {
        std::vector<int64_t> micros = divisors(place.rows);
        std::reverse(micros.begin(), micros.end());
        for (const int64_t micro : micros) {
          Choice choice{.mesh = place.mesh, .zero = place.zero, .micro_batch = micro};
          choice.schedule = schedule;
          choice.precision = precision;
          add_memory(choice);
        }
      }
  }
  std::vector<Choice> all;

 private:
  std::vector<ScheduleKind> schedules(const parallel::MeshOptions& mesh) const {
    if (mesh.pipeline == 1) return {base_.options.parallel.schedule};
    std::vector<ScheduleKind> kinds;
    for (const ScheduleKind kind : schedules_for(base_.options))
      if (stages_with(base_.options, mesh, kind) <= base_.blocks) kinds.push_back(kind);
    return kinds;
  }

  // Cheapest first, so that what is dominated comes after what dominates it.
  void add_memory(Choice choice) {
    for (const auto& offload : offloads_for(request_, choice.zero))
      for (const memory::Again again : recompute_levels(base_.options, base_.blocks)) {
        choice.offload = offload;
        choice.recompute = again;
        if (does_something(choice)) all.push_back(choice);
      }
  }

  // On one rank ZeRO is there for weights on the host alone.
  static bool does_something(const Choice& choice) {
    if (choice.zero == 0 || choice.mesh.shard.value_or(1) > 1) return true;
    return std::find(choice.offload.begin(), choice.offload.end(), "parameters") !=
           choice.offload.end();
  }

  const Request& request_;
  const Base& base_;
  std::vector<std::string> precisions_;
};

}  // namespace

std::vector<Choice> choices_of(const Request& request) {
  const Base base = base_of(request);
  Enumeration all(request, base);
  for (const Arrangement& place : arrangements_of(request, base).all) all.add(place);
  return std::move(all.all);
}

}  // namespace braid::plan
