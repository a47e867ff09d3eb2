// SPDX-License-Identifier: BSD-3-Clause
// Where nothing fits: what would help.
#include <fmt/format.h>

#include <algorithm>
#include <optional>

#include "braid/core/error.h"
#include "plan/search_evaluate.h"

namespace braid::plan {
namespace {

// The nearest miss with its states in pieces over `times` as many GPUs.
std::optional<Plan> on_more(const Request& request, const Base& base, const Plan& nearest,
                            int64_t times, Evaluator& evaluator) {
  const int64_t gpus = request.gpus * times;
  Choice choice = nearest.choice;
  choice.zero = 3;
  choice.mesh.shard = choice.mesh.shard.value_or(1) * choice.mesh.data.value_or(1) * times;
  choice.mesh.data = 1;
  choice.micro_batch = 1;
  if (base.batch % (*choice.mesh.shard * choice.mesh.expert) != 0) return std::nullopt;
  try {
    return evaluator.memory(apply(base.options, choice), gpus);
  } catch (const ConfigError&) {
    return std::nullopt;
  }
}

}  // namespace

std::string help_text(const Request& request, const Base& base, const Plan& nearest,
                      Evaluator& evaluator) {
  std::vector<std::string> help;
  for (int64_t times = 2; request.gpus * times <= request.cluster.gpus() && times <= 256;
       times *= 2) {
    const std::optional<Plan> more = on_more(request, base, nearest, times, evaluator);
    if (!more || !more->fits) continue;
    help.push_back(fmt::format("{} GPUs with ZeRO-3 ({} of {})", request.gpus * times,
                               size_text(more->peak_bytes), size_text(base.room)));
    break;
  }
  help.push_back(fmt::format("GPUs with {}", size_text(nearest.peak_bytes)));
  const RankPeak& peak = nearest.peaks.front();
  const auto active = peak.by_kind[static_cast<size_t>(MemoryKind::activation)] +
                      peak.by_kind[static_cast<size_t>(MemoryKind::temporary)];
  if (2 * active > peak.device) help.push_back("shorter samples: most of it is activations");
  std::string text = "what would help: " + help.front();
  for (size_t i = 1; i < help.size(); ++i) text += "; or " + help[i];
  return text;
}

}  // namespace braid::plan
