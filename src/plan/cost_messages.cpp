// SPDX-License-Identifier: BSD-3-Clause
#include "plan/cost_messages.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "braid/core/error.h"

namespace braid::plan {
namespace {

using comm::Kind;

double reached(const Link& link, const char* name, const Message& message) {
  if (link.bandwidth > 0) return link.bandwidth * (link.share > 0 ? link.share : 1);
  throw ConfigError(
      {.what = fmt::format("{}.bandwidth is missing, and group {} of {} ranks talks over it", name,
                           message.group, message.ranks.size()),
       .why = "a link without bandwidth would never finish",
       .fix = "braid bench comm --ranks N --cluster FILE measures it and writes it into the file"});
}

double steps_of_tree(double count) { return std::ceil(std::log2(std::max(count, 1.0)) - 1e-9); }

// What a group pays: seconds a byte within a node and between nodes, each with its latency.
struct Paths {
  Spread spread;
  double inside_latency = 0, inside_rate = 1;
  double between_latency = 0, between_rate = 1;  // of one GPU

  bool one_node() const { return spread.nodes <= 1; }
  double ring_latency() const {
    return between_latency * (spread.nodes - 1) + inside_latency * (spread.ranks - spread.nodes);
  }
  double tree_latency() const {
    return between_latency * steps_of_tree(spread.nodes) +
           inside_latency * steps_of_tree(spread.each());
  }
  // A ring crosses between nodes on as many links as it has ranks on a node.
  double seconds_a_byte() const {
    if (one_node()) return 1 / inside_rate;
    const double across = 1 / (between_rate * spread.each());
    return spread.each() > 1 ? std::max(across, 1 / inside_rate) : across;
  }
  double share() const { return (spread.ranks - 1) / spread.ranks; }
};

double all_reduce_seconds(const Paths& paths, double bytes) {
  const double a_byte = paths.seconds_a_byte();
  const double ring = 2 * paths.ring_latency() + 2 * paths.share() * bytes * a_byte;
  const double tree = 2 * paths.tree_latency() + 2 * bytes * a_byte;
  double best = std::min(ring, tree);
  const double each = paths.spread.each(), nodes = paths.spread.nodes;
  if (paths.one_node() || each <= 1) return best;
  // Sum within nodes, then shares of it between nodes, then gather within nodes.
  const double within =
      2 * ((each - 1) * paths.inside_latency + (each - 1) / each * bytes / paths.inside_rate);
  const double rings =
      (nodes - 1) * paths.between_latency + (nodes - 1) / nodes * bytes / each / paths.between_rate;
  return std::min(best, within + 2 * rings);
}

double gather_seconds(const Paths& paths, double bytes) {
  const double ring = paths.ring_latency() + paths.share() * bytes * paths.seconds_a_byte();
  const double each = paths.spread.each(), nodes = paths.spread.nodes;
  if (paths.one_node() || each <= 1) return ring;
  const double within =
      (each - 1) * paths.inside_latency + (each - 1) / each * bytes / paths.inside_rate;
  const double between =
      (nodes - 1) * paths.between_latency + (nodes - 1) / nodes * bytes / each / paths.between_rate;
  return std::min(ring, within + between);
}

double broadcast_seconds(const Paths& paths, double bytes) {
  const double a_byte = paths.seconds_a_byte();
  return std::min(paths.ring_latency(), paths.tree_latency()) + bytes * a_byte;
}

// Each rank sends a share to every other: those of its node inside, the rest between, at once.
double exchange_seconds(const Paths& paths, double bytes) {
  const double n = paths.spread.ranks, each = paths.spread.each();
  const double inside = bytes * (each - 1) / n / paths.inside_rate;
  const double between = paths.one_node() ? 0 : bytes * (n - each) / n / paths.between_rate;
  return paths.ring_latency() + std::max(inside, between);
}

// The rank that sends, where the call does not say it: stages talk to the ones beside them.
int neighbour_of(const Message& message) {
  const auto found = std::find(message.ranks.begin(), message.ranks.end(), message.peer);
  if (found == message.ranks.end()) return message.peer;
  const auto at = found - message.ranks.begin();
  const auto size = static_cast<std::ptrdiff_t>(message.ranks.size());
  return message.ranks[static_cast<size_t>((at + size - 1) % size)];
}

}  // namespace

Spread spread_of(const std::vector<int>& ranks, int64_t gpus_per_node) {
  std::set<int64_t> nodes;
  for (const int rank : ranks) nodes.insert(rank / gpus_per_node);
  return {std::max<double>(1, static_cast<double>(ranks.size())),
          std::max<double>(1, static_cast<double>(nodes.size()))};
}

double message_seconds(const Cluster& cluster, const Message& message, int rank) {
  const Spread spread = spread_of(message.ranks, cluster.gpus_per_node);
  if (spread.ranks <= 1 || message.kind == Kind::recv) return 0;
  const double bytes = static_cast<double>(message.bytes);
  const bool inside = spread.nodes < spread.ranks, between = spread.nodes > 1;
  const Paths paths{
      spread, cluster.inside.latency, inside ? reached(cluster.inside, "inside", message) : 1,
      cluster.between.latency, between ? reached(cluster.between, "between", message) : 1};
  switch (message.kind) {
    case Kind::all_reduce:
      return all_reduce_seconds(paths, bytes);
    case Kind::reduce_scatter:
    case Kind::all_gather:
      return gather_seconds(paths, bytes);
    case Kind::broadcast:
      return broadcast_seconds(paths, bytes);
    case Kind::all_to_all:
      return exchange_seconds(paths, bytes);
    case Kind::send: {
      const int from = rank >= 0 ? rank : neighbour_of(message);
      const bool near = from / cluster.gpus_per_node == message.peer / cluster.gpus_per_node;
      const Link& link = near ? cluster.inside : cluster.between;
      return link.latency + bytes / reached(link, near ? "inside" : "between", message);
    }
    case Kind::recv:
      return 0;
    case Kind::barrier:
      break;
  }
  return 2 * paths.tree_latency();
}

}  // namespace braid::plan
