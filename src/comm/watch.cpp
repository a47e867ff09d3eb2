// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/watch.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <limits>

#include "braid/core/error.h"
#include "braid/core/printable.h"
#include "braid/core/thread.h"
#include "comm/quiet_signals.h"
#include "comm/watch_state.h"

namespace braid::comm {
namespace {

// Four looks within a timeout; once a second is enough, and fewer for a store with many clients.
double beat_of(const WatchOptions& options, int size) {
  const Timeouts& limits = options.timeouts;
  const double shortest = std::min({limits.collective, limits.step, limits.start});
  const double beat = std::clamp(shortest / 4, 0.02, 1.0);
  return std::max(beat, size / 500.0);
}

double wall_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

void print_line(const std::string& line) {
  const std::string text = "braid: " + printable(line) + "\n";
  // Not stdio: the thread that is stuck may hold its lock.
  if (::write(STDERR_FILENO, text.data(), text.size()) < 0) return;
}

WatchOptions with_defaults(WatchOptions options) {
  Timeouts& limits = options.timeouts;
  for (double* limit : {&limits.collective, &limits.step, &limits.start})
    if (*limit <= 0) *limit = std::numeric_limits<double>::infinity();
  if (!options.report) options.report = print_line;
  if (!options.exit) options.exit = [](int code) { std::_Exit(code); };
  return options;
}

void describe_call(Sign& sign, const CallNote& call, const std::string& world) {
  sign.call = call.text;
  sign.number = call.number;
  if (call.group == nullptr) return;
  sign.group = world + call.group->key;
  sign.peers = call.peer >= 0 ? std::vector{call.peer} : call.group->ranks;
}

std::string one_line(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ' ');
  return text;
}

}  // namespace

Watch::State::State(const Group& world, const Store& store, WatchOptions given)
    : options(with_defaults(std::move(given))),
      rank(world.rank()),
      size(world.size()),
      beat_seconds(beat_of(options, world.size())),
      exceptions(std::uncaught_exceptions()),
      place(store.place()),
      calls(store.clone().under("watch")),
      notes({world.notes()}) {
  const QuietSignals quiet;
  thread = start_thread("watch the other ranks", [this] { run(); });
}

Watch::State::~State() {
  // An exception that nobody told of, or a broken call that the program put up with.
  if (std::uncaught_exceptions() > exceptions) leave("an exception");
  {
    const std::lock_guard lock(mutex);
    ending = true;
  }
  changed.notify_all();
  thread.join();
}

void Watch::State::set_text(const std::string& text, bool progress) {
  const std::lock_guard lock(mutex);
  what = one_line(text);
  if (!progress) return;
  stepped = true;
  progressed = Clock::now();
}

void Watch::State::leave(const std::string& why) {
  std::unique_lock lock(mutex);
  if (!left) reason = one_line(why);
  left = true;
  changed.notify_all();
  // The thread keeps its own deadlines; this one is for a machine that gives it no time.
  changed.wait_for(lock, std::chrono::seconds(4), [&] { return phase >= Phase::told; });
}

void Watch::State::enter(Phase next) {
  const std::lock_guard lock(mutex);
  phase = next;
  changed.notify_all();
}

bool Watch::State::pause(double seconds) {
  std::unique_lock lock(mutex);
  return changed.wait_for(lock, std::chrono::duration<double>(seconds),
                          [&] { return ending || left; });
}

// Adds what the groups of one world say; a failure goes before a call that is waited for, and of
// those the oldest counts.
void Watch::State::look_at(const Note& note, const std::string& world, Sign& sign) {
  for (const auto& [key, count] : note.counts()) sign.counts[world + key] = count;
  if (sign.doing == Doing::failed) return;
  if (const std::vector<Note::Failure> failures = note.failures(); !failures.empty()) {
    sign.doing = Doing::failed;
    sign.reason = failures.front().reason;
    sign.told = failures.front().told;
    sign.seconds = failures.front().seconds;
    return describe_call(sign, failures.front().call, world);
  }
  for (const Note::Blocked& blocked : note.blocked()) {
    const std::chrono::duration<double> seconds = Clock::now() - blocked.since;
    if (sign.doing == Doing::waiting && sign.seconds >= seconds.count()) continue;
    sign.doing = Doing::waiting;
    sign.seconds = seconds.count();
    describe_call(sign, blocked.call, world);
  }
}

// What this rank does at this moment.
Sign Watch::State::look() const {
  const std::lock_guard lock(mutex);
  Sign sign{.time = wall_seconds(), .what = what, .last = notes.front()->text()};
  for (size_t i = 0; i < notes.size(); ++i) look_at(*notes[i], std::to_string(i) + ":", sign);
  if (sign.doing == Doing::failed) return sign;
  if (left) {
    sign.doing = Doing::left;
    sign.reason = reason;
  } else if (ending && sign.doing == Doing::busy) {
    sign.doing = Doing::done;
  }
  return sign;
}

// Why this rank itself is not content.
std::optional<Alarm> Watch::State::own_alarm() {
  const Timeouts& limits = options.timeouts;
  const Sign mine = look();
  if (mine.doing == Doing::failed) return Alarm{rank, Cause::failed, limits.collective};
  if (mine.doing == Doing::left) return Alarm{rank, Cause::left, limits.collective};
  if (mine.doing == Doing::waiting && mine.seconds > limits.collective)
    return Alarm{rank, Cause::timeout, limits.collective};
  {
    const std::lock_guard lock(seen->mutex);
    if (seen->early && mine.doing == Doing::waiting)
      return Alarm{rank, Cause::early, limits.collective};
  }
  const std::lock_guard lock(mutex);
  const double limit = stepped ? limits.step : limits.start;
  const std::chrono::duration<double> still = Clock::now() - progressed;
  if (still.count() > limit && !ending) return Alarm{rank, Cause::no_progress, limit};
  return std::nullopt;
}

void Watch::State::run() {
  post_beat();  // from the first moment there is a sign of this rank
  while (true) {
    const bool wanted = pause(beat_seconds);
    if (std::optional<Alarm> mine = own_alarm()) return raise(*mine);
    post_beat();
    calls.wait(std::min(beat_seconds, 0.25));
    if (const std::optional<Alarm> theirs = heard_alarm()) return raise(*theirs);
    if (wanted) return say_done();
  }
}

// A text that is no alarm does not end a healthy run; it is named once.
std::optional<Alarm> Watch::State::heard_alarm() {
  std::string text;
  {
    const std::lock_guard lock(seen->mutex);
    if (seen->alarm || seen->unreadable.empty() || complained) return seen->alarm;
    text = seen->unreadable;
  }
  complained = true;
  options.report("the text at watch/alarm in the store at " + place +
                 " is no alarm of a rank and is passed over: " + printable(text.substr(0, 80)));
  return std::nullopt;
}

// A sign of life, and a look whether somebody has raised the alarm or left. Costs nothing but the
// store's time: if it does not answer, there is no further one until it does.
void Watch::State::post_beat() {
  if (calls.pending_seconds() > 0) return;
  const Sign mine = look();
  const double patience = std::min(1.0, options.timeouts.collective / 2);
  const bool waits = mine.doing == Doing::waiting && mine.seconds > patience;
  Sign shown = mine;
  shown.peers.clear();
  calls.post([seen = seen, mine, shown, waits, rank = rank, size = size](const Store& store) {
    store.set("beat/" + std::to_string(rank), to_text(shown));
    const std::string text = text_at(store, "alarm");
    const std::optional<Alarm> alarm = alarm_of(text, size);
    bool early = false;
    if (!alarm && waits && store.has("done"))
      for (const int peer : mine.peers) {
        const auto theirs = sign_of(text_at(store, "answer/" + std::to_string(peer)));
        if (peer == rank || !theirs) continue;
        const auto count = theirs->counts.find(mine.group);
        early = early || mine.number < 0 || count == theirs->counts.end() ||
                count->second <= mine.number;
      }
    const std::lock_guard lock(seen->mutex);
    seen->alarm = alarm;
    seen->unreadable = alarm ? "" : text;
    seen->early = early;
  });
}

void Watch::State::say_done() {
  const Sign mine = look();
  calls.ask(
      [mine, rank = rank](const Store& store) {
        store.set("answer/" + std::to_string(rank), to_text(mine));
        store.set("done", "");
        store.has("done");  // an answer: all of it has arrived
      },
      std::min(options.timeouts.store, 1.0));
  enter(Phase::over);
}

Watch::Watch(const Group& world, const Store& store, WatchOptions options)
    : state_(std::make_unique<State>(world, store, std::move(options))) {}
Watch::~Watch() = default;

void Watch::add(const Group& world) {
  const std::lock_guard lock(state_->mutex);
  state_->notes.push_back(world.notes());
}

void Watch::note(const std::string& what) { state_->set_text(what, false); }
void Watch::progress(const std::string& what) { state_->set_text(what, true); }
void Watch::leave(const std::string& reason) { state_->leave(reason); }

std::string Watch::verdict() const {
  const std::lock_guard lock(state_->mutex);
  return state_->line;
}

}  // namespace braid::comm
