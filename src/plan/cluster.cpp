// SPDX-License-Identifier: BSD-3-Clause
#include "braid/plan/cluster.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "braid/core/error.h"
#include "braid/core/precision.h"
#include "plan/clusters.h"

namespace braid::plan {
namespace {

constexpr const char* cluster_fix =
    "measure it with `braid bench kernels -o FILE` and `braid bench comm --cluster FILE`, or write "
    "the number of its data sheet into the file";

bool looks_like_file(const std::string& text) {
  return text.ends_with(".yaml") || text.ends_with(".yml") || text.find('/') != std::string::npos;
}

[[noreturn]] void refuse_cluster(const std::string& name) {
  const std::vector<std::string> known = known_clusters();
  const std::string near = nearest(name, known);
  throw ConfigError(
      {.what = fmt::format("no cluster is called {}{}", name,
                           near.empty() ? "" : fmt::format("; did you mean {}?", near)),
       .why = fmt::format("the known ones are {}; what a machine computes and carries is measured "
                          "or read from its data sheet, never guessed",
                          fmt::join(known, ", ")),
       .fix = "on a GPU of that machine: braid bench kernels -o mine.yaml; braid bench comm "
              "--ranks 8 --cluster mine.yaml; then --cluster mine.yaml"});
}

void need(bool there, const std::string& where, const std::string& what, const std::string& why) {
  if (there) return;
  throw ConfigError({.what = what, .why = why, .fix = cluster_fix, .where = where});
}

void check_link(const Link& link, const std::string& where, const std::string& name, bool used) {
  if (!used) return;
  need(link.bandwidth > 0, where, fmt::format("{}.bandwidth is missing", name),
       fmt::format("GPUs talk over it ({}), and a link without bandwidth would never finish",
                   name == "inside" ? "gpus_per_node is above 1" : "nodes is above 1"));
  need(link.share > 0, where, fmt::format("{}.share is missing", name),
       "large collectives reach only a share of a link's bandwidth: 1 would promise too much");
}

}  // namespace

double Gpu::peak_of(c10::ScalarType dtype, bool tf32) const {
  const std::string word = dtype == c10::kFloat && tf32 ? "tf32" : std::string(dtype_name(dtype));
  const auto found = peak.find(word);
  if (found != peak.end()) return found->second;
  std::vector<std::string> said;
  for (const auto& [key, value] : peak) said.push_back(key);
  throw ConfigError({.what = fmt::format("gpu.peak.{} of {} is missing", word, name),
                     .why = fmt::format("a step computes in {}, and the file says the FLOP/s of {} "
                                        "alone",
                                        word, fmt::join(said, ", ")),
                     .fix = cluster_fix});
}

void check(const Cluster& cluster, const std::string& where) {
  const Gpu& gpu = cluster.gpu;
  need(!gpu.name.empty(), where, "gpu.name is missing", "a plan says which GPU it is for");
  need(gpu.memory.count > 0, where, "gpu.memory is missing",
       "what fits is counted against the memory of the device");
  need(gpu.bandwidth > 0, where, "gpu.bandwidth is missing",
       "most operators move bytes: their time is bytes over the bandwidth of the memory");
  need(!gpu.peak.empty(), where, fmt::format("gpu.peak of {} is missing", gpu.name),
       "products are timed by the FLOP/s that the GPU can do in their dtype");
  need(gpu.launch > 0, where, "gpu.launch is missing",
       "small kernels are as slow as the host that starts them");
  if (gpu.curves.empty()) {
    need(gpu.gemm_share > 0, where, "gpu.gemm_share is missing",
         "there are no measured curves, so products need the share of the peak that they reach");
    need(gpu.stream_share > 0, where, "gpu.stream_share is missing",
         "there are no measured curves, so other kernels need the share of the bandwidth that "
         "they reach");
  }
  check_link(cluster.inside, where, "inside", cluster.gpus_per_node > 1);
  check_link(cluster.between, where, "between", cluster.nodes > 1);
}

std::vector<std::string> known_clusters() {
  std::vector<std::string> names;
  for (const ClusterFile& file : cluster_files()) names.push_back(file.name);
  return names;
}

Cluster load_cluster(const std::string& name_or_file) {
  const auto read = [](const Config& config, const std::string& where) {
    Cluster cluster = read_options<Cluster>(config);
    check(cluster, where);
    return cluster;
  };
  for (const ClusterFile& file : cluster_files())
    if (file.name == name_or_file)
      return read(Config::parse(file.text, "clusters/" + file.name + ".yaml"), file.name);
  if (!looks_like_file(name_or_file)) refuse_cluster(name_or_file);
  Cluster cluster = read(Config::load(name_or_file), name_or_file);
  if (cluster.name.empty()) cluster.name = std::filesystem::path(name_or_file).stem().string();
  return cluster;
}

}  // namespace braid::plan
