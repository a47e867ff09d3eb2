// SPDX-License-Identifier: BSD-3-Clause
// What a choice takes at least, in time and memory, by dry runs of single micro-batches that many
// choices share.
//
//   Bounds bounds(request, base);
//   if (bounds.memory(choice) > base.room) ...   // cannot fit
//   bounds.throughput(choice);                   // samples a second, no better than that
//
// Time: kernels of a micro-batch run as often as there are micro-batches, one after the other, with
// the messages that they wait for; a pipeline adds the way to a stage and back; gradients travel
// beside at best. Before that is known for a micro-batch and a mesh, kernels of the largest one on
// one GPU stand for them: parts of a kernel together are not faster than the whole, within a tenth
// (the last wave of blocks of a kernel may be nearly empty). Memory: a pass of fewer
// samples needs no more, but for scratch of kernels; nothing is said about what lies between two of
// them, because losses are computed in pieces of one size.
#pragma once
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "plan/space.h"

namespace braid::plan {

// One micro-batch of the part of a model that ranks of tensor, context and expert share.
struct Unit {
  std::vector<double> forward, backward;  // seconds by block, with what is around at both ends
  double optimizer = 0;                   // seconds, of all weights
  double host = 0;                        // seconds that the host starts kernels for
  std::vector<double> again;              // FLOPs computed again by block; half of causal attention
  std::vector<Message> waited;            // messages that nothing hides
  int64_t to_host = 0;                    // bytes of activations that go there
};

// Bytes that the same part holds.
struct Footprint {
  int64_t weights = 0, states = 0;  // all the time
  std::vector<int64_t> kept = {};   // of each block, for its backward pass
  int64_t rest = 0;  // most of all else at one time, but gradients and what they are sent in
  int64_t even = 0;  // the same without scratch of kernels, which more samples may need less of
};

class Bounds {
 public:
  Bounds(const Request& request, const Base& base);

  enum class Level : uint8_t { kernels, messages, exact };  // what is looked at, sooner to later
  double throughput(const Choice& choice, Level level);     // samples/s
  int64_t memory(const Choice& choice);                     // bytes of the fullest rank's GPU
  int64_t host(const Choice& choice);                       // bytes of a rank's host
  bool too_large(const Choice& choice);                     // for the GPU or the host
  int64_t dry_runs() const { return dry_runs_; }
  // What a whole dry run came to holds for others that spread their states in another way.
  void learn(const Choice& choice, const Plan& plan);

 private:
  using Passing =
      std::tuple<int64_t, int64_t, int64_t, int64_t, int64_t, int, int, std::string, bool>;
  static Passing passing_of(const Choice& choice);
  struct StageMap {
    std::vector<Range> blocks;  // of each stage
    std::vector<int> rank_of;
  };
  const StageMap& stages(const Choice& choice);
  double kept_in_flight(const Choice& choice, const Footprint& whole);
  using Key = std::tuple<int64_t, int64_t, int64_t, int64_t, int, std::string, bool, bool>;
  struct Asked {
    int64_t micro = 1;
    memory::Again recompute = memory::Again::none;
    bool stashed = false;  // activations on the host
    bool once = false;     // the only pass of its step: its loss is not scaled
  };
  static Key key_of(const Choice& choice, const Asked& asked);
  const Unit& unit(const Choice& choice, const Asked& asked);
  Unit run(const Choice& choice, const Asked& asked);
  double least_seconds(const CostModel& model, const Message& message);
  const CostModel& costs(const Choice& choice);
  Unit part_of_largest(const Choice& choice, Level level);
  std::vector<double> again_seconds(const Choice& choice);
  double step_seconds(const Choice& choice, const Unit& unit, int64_t micros);
  double pipeline_seconds(const Choice& choice, const Unit& unit, int64_t micros);
  double traffic_seconds(const Choice& choice, int64_t micros);
  int64_t summed_weights(const Choice& choice);
  double copy_seconds(const Choice& choice, int64_t micros);
  const Footprint& footprint(const Choice& choice, const Asked& asked);
  int64_t memory_with(const Choice& choice, const Footprint& whole);
  train::RunOptions alone(const Choice& choice, const Asked& asked, int64_t passes) const;

  const Request& request_;
  const Base& base_;
  std::map<Key, Unit> units_;
  std::map<Key, Footprint> footprints_;
  std::map<std::string, CostModel> costs_;
  std::map<std::pair<int64_t, int>, StageMap> stages_;
  std::map<std::tuple<int64_t, int, int64_t>, std::vector<int>> in_flight_;
  std::map<Passing, int64_t> learnt_;
  std::map<std::tuple<int, size_t, int64_t>, double> least_;  // of messages
  int64_t largest_ = 1;                                       // micro-batch
  int64_t dry_runs_ = 0;
};

}  // namespace braid::plan
