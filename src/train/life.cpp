// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/life.h"

#include <ATen/record_function.h>

#include <chrono>
#include <map>
#include <memory>
#include <set>
#include <utility>

#include "braid/core/region.h"
#include "braid/memory/instruments.h"
#include "train/rig.h"

namespace braid::train {
namespace {

// Regions of a step as spans of its operators. Callbacks of torch are plain functions: the one that
// listens on this thread is found here.
class RegionListener;
thread_local RegionListener* region_listener = nullptr;

class RegionListener {
 public:
  explicit RegionListener(const memory::OperatorLog& log)
      : log_(log),
        handle_(at::addThreadLocalCallback(
            at::RecordFunctionCallback(&begin, &end).scopes({at::RecordScope::USER_SCOPE}))) {
    region_listener = this;
  }
  ~RegionListener() {
    region_listener = nullptr;
    at::removeCallback(handle_);
  }
  RegionListener(const RegionListener&) = delete;
  RegionListener& operator=(const RegionListener&) = delete;

  std::vector<LifeRegion> regions;
  // Of the first backward pass, nanoseconds since this was made.
  int64_t backward_began = 0;

 private:
  using Clock = std::chrono::steady_clock;
  struct Began final : at::ObserverContext {
    size_t index = 0;
  };

  int64_t nanoseconds() const {
    return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - made_).count();
  }
  int64_t position() const { return static_cast<int64_t>(log_.operators().size()); }

  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    std::string_view name = function.name();
    constexpr std::string_view mark = "## ";
    if (region_listener == nullptr || !name.starts_with(mark) || name.size() < 2 * mark.size())
      return nullptr;
    name = name.substr(mark.size(), name.size() - 2 * mark.size());
    auto began = std::make_unique<Began>();
    began->index = region_listener->regions.size();
    const int64_t here = region_listener->position();
    if (name == "backward" && region_listener->backward_began == 0)
      region_listener->backward_began = region_listener->nanoseconds();
    region_listener->regions.push_back({std::string(name), here, here});
    return began;
  }

  static void end(const at::RecordFunction&, at::ObserverContext* context) {
    if (region_listener == nullptr || context == nullptr) return;
    region_listener->regions[static_cast<Began*>(context)->index].until =
        region_listener->position();
  }

  const memory::OperatorLog& log_;
  at::CallbackHandle handle_;
  const Clock::time_point made_ = Clock::now();
};

// Over groups that are not there, each call noted.
Ranks counted_ranks(const RunOptions& options, const MeasureOptions& how,
                    const std::shared_ptr<comm::Traffic>& traffic) {
  Ranks ranks;
  if (how.world == 1) return ranks;
  ranks.mesh =
      parallel::Mesh(options.mesh, how.world, how.rank, static_cast<int>(options.train.zero));
  const auto dry = [&] {
    return comm::dry(static_cast<int>(how.rank), static_cast<int>(how.world));
  };
  ranks.world = comm::Group(comm::counting(dry(), traffic));
  ranks.control = comm::Group(dry());  // of hosts: no part of a step's time or a GPU's memory
  return ranks;
}

// Ranks that hold the same elements of a weight: a checkpoint has each of them write its share.
int64_t holders_of(const Param& param, const parallel::Mesh& mesh) {
  using parallel::Axis;
  int64_t holders = mesh.size(Axis::data) * mesh.size(Axis::context);
  if (!param.expert) holders *= mesh.size(Axis::expert);
  if (param.piece.cuts.empty()) holders *= mesh.size(Axis::tensor);
  return holders;
}

// Bytes of this rank's share: states are as large as their weights, and are shared in the same way.
int64_t checkpoint_share(const Rig& rig, int64_t state_bytes) {
  double all = 0, mine = 0;
  for (const Param& param : rig.parts.stored()) {
    const auto bytes = static_cast<double>(param.tensor.nbytes());
    all += bytes;
    mine += bytes / static_cast<double>(holders_of(param, rig.ranks.mesh));
  }
  return all == 0 ? 0 : static_cast<int64_t>(static_cast<double>(state_bytes) * mine / all);
}

// What a save lays hands on. Tensors whose elements do not lie in order are copied on their device,
// one after the other.
int64_t save(Rig& rig) {
  int64_t bytes = 0;
  const auto add = [&](const at::Tensor& tensor) {
    bytes += static_cast<int64_t>(tensor.nbytes());
    if (!tensor.is_contiguous()) (void)tensor.detach().reshape({-1});
  };
  for (const Param& param : rig.parts.stored()) add(param.tensor);
  for (const auto& [name, tensor] : rig.parts.optimizer_state().tensors) add(tensor);
  if (rig.parts.ema)
    for (const auto& [name, tensor] : rig.parts.ema->state().tensors) add(tensor);
  return checkpoint_share(rig, bytes);
}

std::vector<LifeGroup> groups_of(const std::vector<comm::TrafficEntry>& entries) {
  std::vector<LifeGroup> groups;
  std::map<const void*, size_t> index;
  std::set<std::pair<size_t, int>> peers;
  for (const comm::TrafficEntry& entry : entries) {
    if (!entry.on_device) continue;
    const auto [at, fresh] = index.try_emplace(entry.ranks.get(), groups.size());
    if (fresh) groups.push_back({.name = entry.group, .ranks = entry.ranks});
    LifeGroup& group = groups[at->second];
    const bool message = entry.kind == comm::Kind::send || entry.kind == comm::Kind::recv;
    if (message && peers.insert({at->second, entry.peer}).second) ++group.peers;
    if (entry.kind == comm::Kind::all_to_all) group.peers = entry.size - 1;
    group.collectives |= !message && entry.kind != comm::Kind::all_to_all;
  }
  return groups;
}

}  // namespace

std::vector<std::vector<int64_t>> shapes_of_rank(const RunOptions& options, MeasureOptions how) {
  const memory::Instruments on({.dry = true});
  const Rig rig(options, how);
  std::vector<std::vector<int64_t>> shapes;
  for (const Param& param : rig.model->params()) shapes.push_back(param.tensor.sizes().vec());
  for (const Param& param : rig.parts.params) shapes.push_back(param.tensor.sizes().vec());
  shapes.push_back(rig.model->local_target(rig.batch.target).sizes().vec());
  return shapes;
}

namespace {

// One part after the other, each with a history of its own.
class Living {
 public:
  Living(const RunOptions& options, MeasureOptions how, const LifeOptions& wanted)
      : options_(options), how_(how), wanted_(wanted) {
    traffic_->expert_load = wanted.expert_load;
  }

  Life run() {
    const memory::Instruments on({.ledger = &ledger_, .dry = how_.dry});
    Ranks ranks;
    if (how_.ranks == nullptr) {
      ranks = counted_ranks(options_, how_, traffic_);
      how_.ranks = &ranks;
    }
    std::unique_ptr<Rig> rig;
    part(life_.build, "build", [&] { rig = std::make_unique<Rig>(options_, how_); });
    part(life_.first_step, "first step", [&] {
      const RegionListener regions(life_.log);
      rig->whole_step();
      life_.backward_began = regions.backward_began;
    });
    steady_step(*rig);
    part(life_.checkpoint, "checkpoint", [&] { life_.staged = save(*rig); });
    if (wanted_.evaluation) part(life_.evaluation, "evaluation", [&] { rig->evaluate(); });
    return std::move(life_);
  }

 private:
  template <class Run>
  void part(Phase& phase, std::string_view name, const Run& run) {
    phase = phase_of(ledger_, how_, run);
    if (wanted_.after) wanted_.after(name, ledger_, life_);
  }

  void steady_step(Rig& rig) {
    std::vector<comm::TrafficEntry> all = traffic_->entries();
    traffic_->clear();
    if (wanted_.trace) {
      RegionListener regions(life_.log);
      const memory::Instruments logged({.ledger = &ledger_, .log = &life_.log, .dry = how_.dry});
      part(life_.step, "step", [&] { rig.whole_step(); });
      life_.regions = std::move(regions.regions);
      life_.messages = traffic_->entries();
    } else {
      part(life_.step, "step", [&] { rig.whole_step(); });
    }
    const std::vector<comm::TrafficEntry> steady = traffic_->entries();
    all.insert(all.end(), steady.begin(), steady.end());
    life_.groups = groups_of(all);
  }

  const RunOptions& options_;
  MeasureOptions how_;
  const LifeOptions& wanted_;
  Life life_;
  memory::Ledger ledger_;
  std::shared_ptr<comm::Traffic> traffic_ = std::make_shared<comm::Traffic>(
      [this] { return static_cast<int64_t>(life_.log.operators().size()); });
};

}  // namespace

Life live(const RunOptions& options, MeasureOptions how, const LifeOptions& wanted) {
  return Living(options, how, wanted).run();
}

}  // namespace braid::train
