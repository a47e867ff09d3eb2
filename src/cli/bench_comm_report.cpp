// SPDX-License-Identifier: BSD-3-Clause
#include "cli/bench_comm.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/core/units.h"

namespace braid::cli {
namespace {

nlohmann::json comm_json(const std::vector<plan::CommPoint>& points, const plan::Link& link,
                         const std::string& which, int ranks) {
  nlohmann::json rows = nlohmann::json::array();
  for (const plan::CommPoint& point : points)
    rows.push_back({{"kind", comm::to_text(point.kind)},
                    {"bytes", point.bytes},
                    {"seconds", point.seconds},
                    {"algorithm_bytes_per_second", point.algorithm},
                    {"bus_bytes_per_second", point.bus}});
  return {{"ranks", ranks},
          {"link", which},
          {"latency_seconds", link.latency},
          {"bandwidth_bytes_per_second", link.bandwidth},
          {"points", std::move(rows)}};
}

void print_links(const std::vector<plan::CommPoint>& points, const plan::Link& link,
                 const std::string& which, int ranks) {
  fmt::print("{} ranks\n{:<16} {:>12} {:>12} {:>14} {:>14}\n{:-<72}\n", ranks, "collective", "size",
             "time", "algbw GB/s", "busbw GB/s", "");
  for (const plan::CommPoint& point : points)
    fmt::print("{:<16} {:>12} {:>12} {:>14.3f} {:>14.3f}\n", comm::to_text(point.kind),
               to_text(Bytes{point.bytes}), to_text(Seconds{point.seconds}), point.algorithm / 1e9,
               point.bus / 1e9);
  fmt::print("{:-<72}\n{}: {} a hop, {:.3f} GB/s\n", "",
             which == "inside" ? "links inside a node" : "links between nodes",
             to_text(Seconds{link.latency}), link.bandwidth / 1e9);
}

}  // namespace

void print_comm(const std::vector<plan::CommPoint>& points, const plan::Link& link,
                const CommPrint& how) {
  if (how.json)
    fmt::print("{}\n", comm_json(points, link, how.which, how.ranks).dump());
  else
    print_links(points, link, how.which, how.ranks);
}

std::string update_cluster(const CommArguments& arguments, const plan::Link& link,
                           const launch::Environment& here, bool one_host) {
  if (arguments.cluster.empty()) return {};
  plan::Cluster cluster = plan::load_cluster(arguments.cluster);
  if (one_host) {
    cluster.inside = link;
    cluster.gpus_per_node = std::max<int64_t>(cluster.gpus_per_node, here.world);
  } else {
    cluster.between = link;
    const int each = std::max(1, here.local_world);
    cluster.nodes = std::max<int64_t>(cluster.nodes, here.world / each);
  }
  cluster.source += fmt::format("; braid bench comm over {} ranks", here.world);
  const std::string to = arguments.out.empty() ? arguments.cluster : arguments.out;
  write_atomic(to, plan::to_yaml(cluster));
  return to;
}

void check_output(const CommArguments& arguments) {
  if (arguments.cluster.empty() && !arguments.out.empty())
    throw ConfigError({.what = fmt::format("-o {} without --cluster", arguments.out),
                       .why = "links alone are no cluster: the file needs a GPU, too",
                       .fix = "braid bench kernels -o mine.yaml, then --cluster mine.yaml"});
  if (arguments.cluster.empty()) return;
  plan::load_cluster(arguments.cluster);
  const bool named = !std::filesystem::exists(arguments.cluster);
  if (named && arguments.out.empty())
    throw ConfigError(
        {.what = fmt::format("--cluster {} has no file of its own", arguments.cluster),
         .why = "known clusters are part of braid and stay as they are",
         .fix = "say where the new file goes: -o mine.yaml"});
}

}  // namespace braid::cli
