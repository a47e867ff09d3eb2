// SPDX-License-Identifier: BSD-3-Clause
// What a watch does after an alarm: the ranks tell where they are, one of them says who is to
// blame, all end. Every wait has an end of its own: all of it takes less than 5 s.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "braid/core/error.h"
#include "comm/host_claim.h"
#include "comm/watch_state.h"

namespace braid::comm {
namespace {

constexpr double store_seconds = 1.2;    // for an answer of the store: it is there or it is lost
constexpr double collect_seconds = 2.0;  // for the answers of all ranks: two beats
constexpr double verdict_seconds = 0.8;  // longer for the rank that has the word, and a beat:
constexpr double longest_beat = 1.0;     // it may have heard of the alarm so much later
constexpr double look_seconds = 0.05;
const std::string no_verdict = "-";  // every rank has said for itself why it left

double alarm_wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// A rank that has ended by itself leaves it to those that lost it.
bool has_the_word(const Sign& sign) {
  return sign.doing != Doing::left && sign.doing != Doing::done;
}

std::string answer_key(int rank) { return fmt::format("answer/{}", rank); }

}  // namespace

void Watch::State::raise(const Alarm& mine) {
  enter(Phase::alarm);
  tell(find_verdict(mine));
  enter(Phase::told);
  end_rank();
}

// The line, if this rank is the one to print it, or "".
std::string Watch::State::find_verdict(const Alarm& mine) {
  const auto start = Clock::now();
  const auto spent = [&] { return std::chrono::duration<double>(Clock::now() - start).count(); };
  const Sign answer = look();
  const auto asked = calls.ask(
      [answer, mine, rank = rank, size = size](const Store& store) {
        store.set(answer_key(rank), to_text(answer));
        if (!alarm_of(text_at(store, "alarm"), size)) store.set("alarm", to_text(mine));
      },
      store_seconds);
  if (asked != StoreThread::Answer::yes) return lost_store(mine, answer, asked);
  Findings found{.alarm = mine};
  found.signs.resize(static_cast<size_t>(size));
  found.answered.resize(static_cast<size_t>(size));
  bool complete = false;
  while (!complete && spent() < collect_seconds) {
    if (read_verdict(look_seconds)) return said_by_another(answer);
    if (rank == 0) complete = collect(found);
  }
  collect(found);
  const double patience = verdict_seconds + std::min(beat_seconds, longest_beat);
  if (lower_rank_answers(found) && read_verdict(patience)) return "";
  std::string text = claim_verdict(found);
  if (text.empty() && read_verdict(verdict_seconds)) return said_by_another(answer);
  return text;
}

// Rank 0 has the terminal. If it was to speak and was too late, it says what another one found:
// that one's line is in a log.
std::string Watch::State::said_by_another(const Sign& mine) const {
  const std::lock_guard lock(mutex);
  return rank == 0 && has_the_word(mine) ? line : "";
}

// The first rank alive has the word.
bool Watch::State::lower_rank_answers(const Findings& found) const {
  for (size_t other = 0; other < static_cast<size_t>(rank); ++other)
    if (found.answered[other] && has_the_word(found.signs[other])) return true;
  return false;
}

// Waits for what another rank found. Jobs own what they write: they may outlive the wait for them.
bool Watch::State::read_verdict(double seconds) {
  const auto end = Clock::now() + std::chrono::duration<double>(seconds);
  do {
    const auto text = std::make_shared<std::string>();
    const auto asked =
        calls.ask([text](const Store& store) { *text = printable(text_at(store, "verdict")); },
                  store_seconds);
    if (asked == StoreThread::Answer::yes && !text->empty()) {
      const std::lock_guard lock(mutex);
      if (*text != no_verdict) line = *text;
      return true;
    }
    std::this_thread::sleep_for(std::chrono::duration<double>(look_seconds));
  } while (Clock::now() < end);
  return false;
}

// Reads the answers that were not there before; true: all are.
bool Watch::State::collect(Findings& found) {
  const auto fresh = std::make_shared<Findings>(found);
  const auto asked = calls.ask(
      [fresh](const Store& store) {
        for (size_t other = 0; other < fresh->signs.size(); ++other) {
          if (fresh->answered[other]) continue;
          const auto sign = sign_of(text_at(store, answer_key(static_cast<int>(other))));
          fresh->answered[other] = sign.has_value();
          if (sign) fresh->signs[other] = *sign;
        }
        const int ranks = static_cast<int>(fresh->signs.size());
        if (const auto alarm = alarm_of(text_at(store, "alarm"), ranks)) fresh->alarm = *alarm;
      },
      store_seconds);
  if (asked != StoreThread::Answer::yes) return false;
  found = *fresh;
  return std::all_of(found.answered.begin(), found.answered.end(), [](bool yes) { return yes; });
}

// "" if another rank was first.
std::string Watch::State::claim_verdict(const Findings& found) {
  const auto fresh = std::make_shared<Findings>(found);
  const auto text = std::make_shared<std::string>();
  const auto asked = calls.ask(
      [fresh, text](const Store& store) {
        if (!store.claim("word")) return;
        for (size_t other = 0; other < fresh->signs.size(); ++other) {
          if (fresh->answered[other]) continue;
          const auto sign = sign_of(text_at(store, fmt::format("beat/{}", other)));
          if (sign) fresh->signs[other] = *sign;
        }
        fresh->now = alarm_wall_seconds();
        *text = printable(verdict_of(*fresh));
        store.set("verdict", text->empty() ? no_verdict : *text);
      },
      store_seconds);
  return asked == StoreThread::Answer::yes ? *text : "";
}

// Nobody can be asked, so each host has one rank that speaks. A rank that heard of the alarm from
// another one leaves the word to that.
std::string Watch::State::lost_store(const Alarm& mine, const Sign& answer,
                                     StoreThread::Answer asked) {
  const bool closed = asked == StoreThread::Answer::failed;
  const std::string store =
      options.store_rank < 0
          ? fmt::format("the store at {} does not answer", place)
          : fmt::format("rank {} {}; its store at {} does not answer", options.store_rank,
                        closed ? "is gone" : "did not arrive", place);
  std::string text = verdict_without_store(mine, answer, store);
  if (mine.rank == rank && claim_on_host("braid-watch/" + place)) return text;
  const std::lock_guard lock(mutex);
  line = std::move(text);
  return "";
}

void Watch::State::tell(const std::string& found) {
  if (found.empty()) return;
  {
    const std::lock_guard lock(mutex);
    line = found;
  }
  options.report(found);
  // The others read the line in the store, which ends with this process.
  if (rank == options.store_rank) std::this_thread::sleep_for(std::chrono::milliseconds(300));
}

// The program may end by itself: with its own exception, its own exit code and closed files.
void Watch::State::end_rank() {
  const bool broken = look().doing == Doing::failed;
  std::unique_lock lock(mutex);
  changed.wait_for(lock, std::chrono::duration<double>(1.0), [&] { return ending || left; });
  if (left)
    changed.wait_for(lock, std::chrono::duration<double>(broken ? 1.0 : 3.0),
                     [&] { return ending; });
  phase = Phase::over;
  if (ending) return;
  lock.unlock();
  options.exit(static_cast<int>(Exit::comm));
}

}  // namespace braid::comm
