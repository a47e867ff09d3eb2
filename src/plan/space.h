// SPDX-License-Identifier: BSD-3-Clause
// What a search stands on: the config with its batch said once and for all, the room of a GPU, and
// the axes that the model can be spread over.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "braid/plan/search.h"

namespace braid::plan {

struct Base {
  train::RunOptions options;  // global batch set, budget and auto taken out
  int64_t batch = 1;          // global
  int64_t room = 0;           // bytes of a GPU
  int64_t blocks = 0;         // of the model
};
// ConfigError for a request that means nothing: no GPUs, more than the cluster has, ...
Base base_of(const Request& request);

std::vector<int64_t> divisors(int64_t number);  // ascending

// Everything but micro-batch, recompute, schedule and offload.
struct Arrangement {
  parallel::MeshOptions mesh;
  int64_t zero = 0;
  int64_t rows = 1;  // samples of a rank
};
struct Arrangements {
  std::vector<Arrangement> all;
  std::vector<std::string> notes;  // what was left out and why
};
// Of all axes that go with the model and the batch.
Arrangements arrangements_of(const Request& request, const Base& base);

std::vector<memory::Again> recompute_levels(const train::RunOptions& options, int64_t blocks);
std::vector<parallel::ScheduleKind> schedules_for(const train::RunOptions& options);
std::vector<std::vector<std::string>> offloads_for(const Request& request, int64_t zero);

int64_t rows_of(const Choice& choice, const Base& base);  // samples of a rank

// Whether a node has room for what its ranks, of so many bytes each, leave on its host.
bool host_holds(const Cluster& cluster, int64_t gpus, int64_t bytes);

// Whether `less` keeps more on the GPU and computes no more than `more`, all else being equal.
bool costs_less(const Choice& less, const Choice& more);

std::string number_text(int64_t number, const char* one, const char* many);  // "1 mesh", "2 meshes"
std::string axes_text(const nn::ModelOptions& model);  // "data, shard and pipeline"

}  // namespace braid::plan
