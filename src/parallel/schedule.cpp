// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/schedule.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "braid/core/error.h"
#include "parallel/schedule_parts.h"

namespace braid::parallel {
namespace {

constexpr std::array<std::string_view, 9> kind_words = {
    "naive", "gpipe", "1f1b",      "interleaved",  "zb_h1",
    "zb_h2", "zb_v",  "pipedream", "pipedream_2bw"};

bool flushless(ScheduleKind kind) {
  return kind == ScheduleKind::pipedream || kind == ScheduleKind::pipedream_2bw;
}

void need_counts(const ScheduleOptions& options) {
  const struct {
    const char* name;
    int value;
  } counts[] = {{"ranks", options.ranks},
                {"micros", options.micros},
                {"chunks", options.chunks},
                {"gathered", options.gathered},
                {"rounds", options.rounds}};
  for (const auto& count : counts)
    if (count.value < 1)
      throw ConfigError({.what = fmt::format("{} = {} of schedule {}", count.name, count.value,
                                             to_text(options.kind)),
                         .why = "a pipeline has at least one rank, one stage and one micro-batch",
                         .fix = fmt::format("set {} to 1 or more", count.name)});
}

// Each action of each rank is an element of a list, which is checked and timed.
void need_countable(const ScheduleOptions& options) {
  constexpr double most = 4e6;
  const double passes = static_cast<double>(options.ranks) * options.chunks * options.micros *
                        static_cast<double>(options.rounds);
  if (passes <= most) return;
  throw ConfigError(
      {.what = fmt::format("a schedule of {} ranks, {} stages per rank, {} micro-batches and {} "
                           "rounds",
                           options.ranks, options.chunks, options.micros, options.rounds),
       .why = fmt::format("these are {:.3g} passes, and every pass is listed; at most {:.0f} are",
                          passes, most),
       .fix = "take fewer micro-batches (a larger train.micro_batch), ranks or rounds"});
}

void need_chunks(const ScheduleOptions& options) {
  const std::string_view kind = to_text(options.kind);
  if (options.kind == ScheduleKind::interleaved && options.chunks < 2)
    throw ConfigError({.what = "schedule interleaved with chunks = 1",
                       .why = "it only helps with several stages per rank",
                       .fix = "set chunks to 2 or more, or take schedule 1f1b"});
  if (options.kind == ScheduleKind::zb_v && options.chunks > 2)
    throw ConfigError({.what = fmt::format("schedule zb_v with chunks = {}", options.chunks),
                       .why = "its V goes down the ranks and up again: two stages per rank",
                       .fix = "set chunks to 2"});
  const bool several =
      options.kind == ScheduleKind::interleaved || options.kind == ScheduleKind::zb_v;
  if (!several && options.chunks > 1)
    throw ConfigError({.what = fmt::format("schedule {} with chunks = {}", kind, options.chunks),
                       .why = "only interleaved and zb_v give a rank more than one stage",
                       .fix = "set chunks to 1, or take schedule interleaved"});
}

void need_no_flush(const ScheduleOptions& options) {
  const std::string_view kind = to_text(options.kind);
  if (!flushless(options.kind) && options.rounds > 1)
    throw ConfigError({.what = fmt::format("schedule {} with rounds = {}", kind, options.rounds),
                       .why = "it ends with an update, so that a list is one round",
                       .fix = "set rounds to 1, or take schedule pipedream or pipedream_2bw"});
  if (options.vertical_sync && options.kind != ScheduleKind::pipedream)
    throw ConfigError({.what = fmt::format("schedule {} with vertical_sync", kind),
                       .why = "all its stages run a micro-batch with one version already",
                       .fix = "leave vertical_sync out, or take schedule pipedream"});
  if (options.kind == ScheduleKind::pipedream_2bw && options.micros < options.ranks)
    throw ConfigError(
        {.what = fmt::format("schedule pipedream_2bw with micros = {} and ranks = {}",
                             options.micros, options.ranks),
         .why = "with fewer micro-batches a version than ranks, two versions are not enough",
         .fix = fmt::format("set micros to {} or more", options.ranks)});
}

ActionLists order_of(const ScheduleOptions& o, int micros) {
  switch (o.kind) {
    case ScheduleKind::naive:
      return naive_order(o.ranks, micros);
    case ScheduleKind::gpipe:
      return gpipe_order(o.ranks, micros);
    case ScheduleKind::interleaved:
      return interleaved_order(o.ranks, micros, o.chunks);
    case ScheduleKind::zb_h1:
      return zb_h_order(o.ranks, micros, 1);
    case ScheduleKind::zb_h2:
      return zb_h_order(o.ranks, micros, 2);
    case ScheduleKind::zb_v:
      return zb_v_order(o.ranks, micros);
    case ScheduleKind::one_f_one_b:
    case ScheduleKind::pipedream:
    case ScheduleKind::pipedream_2bw:
      return one_f_one_b_order(o.ranks, micros);
  }
  throw InternalError({.what = "unknown schedule", .why = "", .fix = ""});
}

std::vector<int> placement_of(const ScheduleOptions& options) {
  const int p = options.ranks;
  const bool vee = options.kind == ScheduleKind::zb_v;
  std::vector<int> rank_of(static_cast<size_t>(p * (vee ? 2 : options.chunks)));
  for (int s = 0; s < static_cast<int>(rank_of.size()); ++s)
    rank_of[static_cast<size_t>(s)] = vee && s >= p ? 2 * p - 1 - s : s % p;
  return rank_of;
}

}  // namespace

std::string_view to_text(ScheduleKind kind) { return kind_words.at(static_cast<size_t>(kind)); }

std::vector<std::string> schedule_kinds() { return {kind_words.begin(), kind_words.end()}; }

ScheduleKind schedule_kind(std::string_view word) {
  const auto* found = std::find(kind_words.begin(), kind_words.end(), word);
  if (found != kind_words.end()) return static_cast<ScheduleKind>(found - kind_words.begin());
  const std::string near = nearest(word, schedule_kinds());
  throw ConfigError({.what = fmt::format("unknown schedule {}", word),
                     .why = fmt::format("known are {}", fmt::join(kind_words, ", ")),
                     .fix = near.empty() ? "take one of these" : fmt::format("write {}", near)});
}

bool computes(Act act) {
  return act == Act::forward || act == Act::backward || act == Act::input_backward ||
         act == Act::weight_backward;
}
bool receives(Act act) { return act == Act::recv_activation || act == Act::recv_gradient; }
bool sends(Act act) { return act == Act::send_activation || act == Act::send_gradient; }

bool Schedule::splits_backward() const {
  for (const std::vector<Action>& list : lists)
    for (const Action& action : list)
      if (action.act == Act::weight_backward) return true;
  return false;
}

std::vector<int> Schedule::stages_of(int rank) const {
  std::vector<int> held;
  for (size_t s = 0; s < rank_of.size(); ++s)
    if (rank_of[s] == rank) held.push_back(static_cast<int>(s));
  return held;
}

Schedule make_schedule(const ScheduleOptions& options) {
  need_counts(options);
  need_countable(options);
  need_chunks(options);
  need_no_flush(options);
  Schedule made;
  made.name = to_text(options.kind);
  made.ranks = options.ranks;
  made.micros = options.micros * options.rounds;
  made.rank_of = placement_of(options);
  made.stages = static_cast<int>(made.rank_of.size());
  made.lists = order_of(options, made.micros);
  if (options.kind == ScheduleKind::pipedream) add_updates(made.lists, 1);
  if (options.kind == ScheduleKind::pipedream_2bw) add_updates(made.lists, options.micros);
  place_messages(made);
  if (options.gathers) place_gathers(made, options.gathered);
  return made;
}

}  // namespace braid::parallel
