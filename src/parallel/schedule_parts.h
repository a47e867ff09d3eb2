// SPDX-License-Identifier: BSD-3-Clause
// What the files of schedules share: orders of F, B, W a rank, and how sends, receives and gathers
// are placed around them.
#pragma once
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "braid/core/error.h"
#include "braid/parallel/schedule.h"

namespace braid::parallel {

using ActionLists = std::vector<std::vector<Action>>;  // of each rank

// Orders of the computing actions alone.
ActionLists naive_order(int ranks, int micros);
ActionLists gpipe_order(int ranks, int micros);
ActionLists one_f_one_b_order(int ranks, int micros);
ActionLists interleaved_order(int ranks, int micros, int chunks);
ActionLists zb_h_order(int ranks, int micros, int depth);  // depth 1: ZB-H1, 2: ZB-H2
ActionLists zb_v_order(int ranks, int micros);
void add_updates(ActionLists& lists, int every);  // after each `every`-th backward of a stage

// Lists with F, B, W (and updates) get their sends and receives.
void place_messages(Schedule& schedule);
// A rank holds at most `gathered` of its stages' weights at once.
void place_gathers(Schedule& schedule, int gathered);

struct Message {
  int from = 0, to = 0;  // ranks
  Action send, recv;
};
// Of a send or a receive; the stages must be there.
Message message_of(const Schedule& schedule, const Action& action);
bool crosses(const Schedule& schedule, int stage);  // from `stage` to the next: to another rank

// Where each action stands in the list of its rank. Throws ConfigError for one that stands twice or
// does not belong to the rank.
class Places {
 public:
  explicit Places(const Schedule& schedule);
  std::optional<size_t> of(const Action& action) const;
  // B, or I where the pass is split.
  Action backward_of(int stage, int micro) const;

 private:
  size_t cell(const Action& action) const;
  int stages_ = 0, micros_ = 0;
  std::vector<std::optional<size_t>> places_;
};

std::string_view letters(Act act);          // F, B, I, W, SA, RA, SG, RG, G, R, U
std::string word_of(const Action& action);  // "F3@1": micro-batch 3, stage 1
// "rank 1 waits at B0@1 (action 4)" of each rank that has not come to its end.
std::string who_waits(const Schedule& schedule, const std::vector<size_t>& at);

// Parts of check(): `places` knows where each action stands.
[[noreturn]] void refuse_schedule(const Schedule& schedule, Complaint complaint);
std::string place_of(int rank, size_t index, const Action& action);  // "rank 1, action 7 (B3@1)"
void check_computing(const Schedule& schedule);                      // all but messages
void check_passes(const Schedule& schedule, const Places& places);
void check_messages(const Schedule& schedule, const Places& places);
void check_running(const Schedule& schedule, const Places& places);  // virtual execution

}  // namespace braid::parallel
