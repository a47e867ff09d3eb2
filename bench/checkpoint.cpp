// SPDX-License-Identifier: BSD-3-Clause
// Saving and loading a checkpoint of about 1 GB on two ranks, each of which holds half of every
// tensor. bench/checkpoint.sh runs it beside torch.distributed.checkpoint.
//
//   bench_checkpoint RANK RANKS STORE_FILE DIR [ROUNDS]     rank 0 prints one JSON object
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <string>

#include "braid/checkpoint/store.h"
#include "braid/comm/store.h"

namespace {

using namespace braid;

constexpr int64_t rows = 1024, columns = 1792, tensors = 48;  // of weights and two moments each

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double slowest(const comm::Group& world, double seconds) {
  const at::Tensor value = at::full({1}, seconds, at::TensorOptions(c10::kDouble));
  world.all_reduce(value, comm::Op::max).wait();
  return value.const_data_ptr<double>()[0];
}

// Elements first .. last of every tensor.
State part(int64_t first, int64_t last, double value) {
  State state;
  for (int64_t i = 0; i < tensors; ++i)
    for (const char* kind :
         {"model/{:03}", "optimizer/{:03}/exp_avg", "optimizer/{:03}/exp_avg_sq"})
      state.set(fmt::format(fmt::runtime(kind), i), at::full({last - first}, value + i),
                {.whole = {rows, columns}, .first = first});
  return state;
}

struct Best {
  double blocked = 1e30, first_blocked = 0, saved = 1e30, saved_at_once = 1e30, loaded = 1e30,
         moved = 1e30;
};

double load_seconds(const checkpoint::Store& store, const comm::Group& world, const State& wanted) {
  world.barrier().wait();
  const double start = now();
  store.newest([&](const checkpoint::Reader& reader) { reader.fill(wanted); });
  return slowest(world, now() - start);
}

void save_round(const std::string& dir, const comm::Group& world, const State& state,
                int64_t rounds, Best& best) {
  checkpoint::Store store(dir, {.keep = 1, .best = 0}, world);
  for (int64_t step = 1; step <= rounds; ++step) {
    world.barrier().wait();
    const double start = now();
    store.save({.step = step, .state = state});
    const double blocked = slowest(world, now() - start);
    store.wait();
    const double saved = slowest(world, now() - start);
    if (step == 1) best.first_blocked = blocked;
    best.blocked = std::min(best.blocked, blocked);
    best.saved = std::min(best.saved, saved);
  }
  checkpoint::Store direct(dir, {.keep = 1, .best = 0, .background = false}, world);
  world.barrier().wait();
  const double start = now();
  direct.save({.step = rounds + 1, .state = state});
  best.saved_at_once = slowest(world, now() - start);
}

std::string peak_memory() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::to_string(std::stoll(line.substr(6)));
  return "0";
}

}  // namespace

int main(int count, char** words) {
  if (count < 5) {
    fmt::print(stderr, "usage: bench_checkpoint RANK RANKS STORE_FILE DIR [ROUNDS]\n");
    return 2;
  }
  const int rank = std::atoi(words[1]), ranks = std::atoi(words[2]);
  const int64_t rounds = count > 5 ? std::atoll(words[5]) : 3;
  const comm::Group world(comm::gloo(comm::Store::file(words[3], ranks), rank, ranks));
  const int64_t all = rows * columns;
  const State state = part(all * rank / ranks, all * (rank + 1) / ranks, 1);
  Best best;
  save_round(words[4], world, state, rounds, best);
  const checkpoint::Store store(words[4], {}, world);
  const State same = part(all * rank / ranks, all * (rank + 1) / ranks, -1);
  // Another split, as with another number of ranks: one third and two thirds.
  const int64_t cut = all / 3;
  const State moved = part(rank == 0 ? 0 : cut, rank == 0 ? cut : all, -1);
  for (int64_t round = 0; round < rounds; ++round) {
    best.loaded = std::min(best.loaded, load_seconds(store, world, same));
    best.moved = std::min(best.moved, load_seconds(store, world, moved));
  }
  if (!same.tensors.at("model/007").equal(state.tensors.at("model/007"))) return 1;
  const double gigabytes = static_cast<double>(all * tensors * 3 * 4) / 1e9;
  if (rank == 0)
    fmt::print(
        "{{\"gigabytes\": {:.3f}, \"first_blocked_s\": {:.3f}, \"blocked_s\": {:.3f}, "
        "\"background_save_s\": {:.3f}, \"save_s\": {:.3f}, \"load_s\": {:.3f}, "
        "\"load_other_split_s\": {:.3f}, \"peak_kB_of_rank_0\": {}}}\n",
        gigabytes, best.first_blocked, best.blocked, best.saved, best.saved_at_once, best.loaded,
        best.moved, peak_memory());
  return 0;
}
