// SPDX-License-Identifier: BSD-3-Clause
#include "braid/launch/spawn.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iterator>
#include <random>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "launch/children.h"
#include "launch/meet.h"

namespace braid::launch {
namespace {

constexpr int comm_code = static_cast<int>(Exit::comm);
constexpr int interrupted_code = static_cast<int>(Exit::interrupted);
constexpr double second_thought = 0.5;  // for the cause to show, when a rank says it lost another

// Signals come as data to read, to this thread and all that it starts; the old way comes back.
class SignalsAsData {
 public:
  SignalsAsData() {
    sigset_t wanted;
    sigemptyset(&wanted);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGUSR2, SIGCHLD})
      sigaddset(&wanted, signal);
    if (ignored(SIGHUP))
      sigdelset(&wanted, SIGHUP);                // by nohup; blocked, it would come all the same
    child_before_ = ::signal(SIGCHLD, SIG_DFL);  // who ignores it hears of no child's exit code
    ::pthread_sigmask(SIG_BLOCK, &wanted, &before_);
    pipe_before_ = ::signal(SIGPIPE, SIG_IGN);  // the store's server writes to ranks that are gone
    socket_ = Descriptor(::signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  }
  ~SignalsAsData() {
    while (next(0) != 0) {
    }
    ::signal(SIGPIPE, pipe_before_);
    ::signal(SIGCHLD, child_before_);
    ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }
  SignalsAsData(const SignalsAsData&) = delete;
  SignalsAsData& operator=(const SignalsAsData&) = delete;

  const sigset_t& before() const { return before_; }
  // The next signal, or 0 after a while.
  int next(int milliseconds) {
    pollfd watched = {.fd = socket_.get(), .events = POLLIN, .revents = 0};
    if (::poll(&watched, 1, milliseconds) <= 0) return 0;
    signalfd_siginfo info = {};
    return ::read(socket_.get(), &info, sizeof(info)) == sizeof(info)
               ? static_cast<int>(info.ssi_signo)
               : 0;
  }

 private:
  static bool ignored(int signal) {
    struct sigaction now = {};
    return ::sigaction(signal, nullptr, &now) == 0 && now.sa_handler == SIG_IGN;
  }
  sigset_t before_ = {};
  sighandler_t pipe_before_ = SIG_DFL, child_before_ = SIG_DFL;
  Descriptor socket_;
};

std::string new_token() {
  std::random_device chance;
  return fmt::format("{:08x}{:08x}{:08x}{:08x}", chance(), chance(), chance(), chance());
}

struct ServedStore {
  std::string host = "127.0.0.1";
  int port = 0;
  std::string token = {};
  comm::Store store = comm::Store::in_memory();
};

// One host: a free port on loopback. Several: where the launcher said, and on the first host only.
ServedStore serve_store(const SpawnOptions& options) {
  const Environment& here = options.here;
  const bool many_hosts = here.world > options.ranks;
  ServedStore served{.host = many_hosts ? here.master_address : "127.0.0.1",
                     .port = many_hosts ? here.master_port : 0,
                     .token = many_hosts ? here.token : new_token()};
  if (options.launch.port != 0) served.port = static_cast<int>(options.launch.port);
  if (many_hosts && here.node_rank != 0) return served;
  Descriptor socket = listen_at(served.port, !many_hosts);
  served.port = port_of(socket);
  served.store = comm::Store::tcp({.host = "127.0.0.1",
                                   .port = served.port,
                                   .server = true,
                                   .listener = socket.release(),
                                   .timeout_seconds = timeouts(options.launch).store});
  mark(served.store, served.token);
  return served;
}

std::vector<std::string> variables_of(const SpawnOptions& options, const ServedStore& served,
                                      int local_rank) {
  std::vector<std::string> variables = variables_to_inherit();
  const int first = options.here.world > options.ranks ? options.here.rank : 0;
  const auto add = [&](const char* name, const auto& value) {
    variables.push_back(fmt::format("{}={}", name, value));
  };
  add("RANK", first + local_rank);
  add("WORLD_SIZE", std::max(options.here.world, options.ranks));
  add("LOCAL_RANK", local_rank);
  add("LOCAL_WORLD_SIZE", options.ranks);
  add("GROUP_RANK", std::max(0, options.here.node_rank));
  add("MASTER_ADDR", served.host);
  add("MASTER_PORT", served.port);
  add("BRAID_JOB_TOKEN", served.token);
  add("BRAID_STORE", "served");
  // For programs that do not call open_world(), too: ranks that take all cores each are many times
  // slower than one.
  const bool said = std::any_of(variables.begin(), variables.end(), [](const std::string& one) {
    return one.starts_with("OMP_NUM_THREADS=");
  });
  const int cores = static_cast<int>(options.here.cores.size());
  if (!said && cores > 0)
    add("OMP_NUM_THREADS", std::max(1, (cores + options.ranks - 1) / options.ranks));
  return variables;
}

class Watch {
 public:
  explicit Watch(const SpawnOptions& options) : options_(options), served_(serve_store(options)) {}
  ~Watch() {
    for (const Child& child : children_)
      if (child.state != Child::State::ended) kill_group(child);
    while (!all_ended())
      for (Child& child : children_) look_at(child);
  }
  Watch(const Watch&) = delete;
  Watch& operator=(const Watch&) = delete;

  int run();

 private:
  using State = Child::State;
  void start();
  void hear(int signal);
  void note(const Child& child);
  void judge();
  const Child* culprit() const;
  const Child* first_in(State state) const;
  const Child* first_left() const;
  void blame(const std::string& sentence, const Child& child, int code);
  void tell_of_others() const;
  void end_all();
  void kill_all();
  bool all_ended() const;
  std::string name(const Child& child) const;
  void say(const std::string& line) const;
  int code() const;

  const SpawnOptions& options_;
  SignalsAsData signals_;  // before the store's threads
  ServedStore served_;
  std::vector<Child> children_ = {};
  int passed_on_ = 0;  // signal
  bool killed_ = false;
  bool ending_ = false;
  bool talking_ = false;  // the others were not asked yet
  Instant ending_since_ = {};
  int verdict_ = -1;
  const Child* blamed_ = nullptr;
};

void Watch::start() {
  make_dirs(options_.log_dir);
  for (int rank = 0; rank < options_.ranks; ++rank) {
    Child child;
    child.rank = rank + (options_.here.world > options_.ranks ? options_.here.rank : 0);
    child.since = std::chrono::steady_clock::now();
    if (rank != 0) child.log = options_.log_dir / fmt::format("rank-{}.log", child.rank);
    std::error_code absent;
    const auto size = std::filesystem::file_size(child.log, absent);
    child.log_start = absent ? 0 : static_cast<int64_t>(size);
    child.pid = start_process({.command = options_.command,
                               .variables = variables_of(options_, served_, rank),
                               .log = child.log.string(),
                               .signals = signals_.before()});
    children_.push_back(std::move(child));
  }
}

int Watch::run() {
  start();
  while (!all_ended()) {
    if (const int signal = signals_.next(100); signal != 0 && signal != SIGCHLD) hear(signal);
    for (Child& child : children_)
      while (look_at(child)) note(child);
    judge();
  }
  tell_of_others();
  return code();
}

void Watch::hear(int given) {
  const int signal = given == SIGHUP ? SIGTERM : given;  // the terminal is gone
  if (signal == SIGINT && passed_on_ == SIGINT) {
    say("braid: a second Ctrl-C: all ranks are killed");
    verdict_ = 128 + SIGINT;
    return kill_all();
  }
  const bool ends = signal != SIGUSR2;  // that asks for a profile, as often as one likes
  if (ends && passed_on_ == signal) return;
  if (ends) passed_on_ = signal;
  for (const Child& child : children_) send(child, signal);
}

void Watch::note(const Child& child) {
  if (child.state == State::stopped)
    say(fmt::format("braid: {} is stopped by {}; the others will wait for it for {:.0f} s",
                    name(child), signal_name(child.signal), timeouts(options_.launch).collective));
  if (child.state == State::running) say(fmt::format("braid: {} goes on", name(child)));
}

// The one that ended by itself, and not because it lost another: that one says exit code 5.
const Child* Watch::culprit() const {
  const Child* worst = nullptr;
  const auto weight = [](const Child& child) {
    return child.signal != 0 ? 3 : child.code != comm_code ? 2 : 1;
  };
  for (const Child& child : children_) {
    if (!child.failed()) continue;
    if (worst == nullptr || weight(child) > weight(*worst) ||
        (weight(child) == weight(*worst) && child.since < worst->since))
      worst = &child;
  }
  return worst;
}

const Child* Watch::first_in(State state) const {
  const Child* first = nullptr;
  for (const Child& child : children_)
    if (child.state == state && (first == nullptr || child.since < first->since)) first = &child;
  return first;
}

// As if it were done.
const Child* Watch::first_left() const {
  const Child* first = nullptr;
  for (const Child& child : children_)
    if (child.state == State::ended && !child.failed() &&
        (first == nullptr || child.since < first->since))
      first = &child;
  return first;
}

void Watch::judge() {
  if (ending_) {
    const double patience = talking_ ? options_.talk_seconds : options_.grace_seconds;
    if (killed_ || seconds_until(ending_since_) > -patience) return;
    return talking_ ? end_all() : kill_all();
  }
  const double patience = timeouts(options_.launch).collective + 5;
  const Child* stopped = first_in(State::stopped);
  if (const Child* bad = culprit()) {
    if (passed_on_ != 0 && bad->signal == passed_on_) {  // it came before a rank could handle it
      verdict_ = 128 + passed_on_;
      return end_all();
    }
    const bool lost_another = bad->signal == 0 && bad->code == comm_code;
    if (lost_another && !all_ended() && seconds_until(bad->since) > -second_thought) return;
    if (lost_another && stopped != nullptr)
      return blame("was stopped for too long", *stopped, comm_code);
    const Child* early = lost_another ? first_left() : nullptr;
    if (early != nullptr)
      return blame(fmt::format("left too early, with exit code {}", early->code), *early,
                   comm_code);
    if (bad->signal == 0)
      return blame(fmt::format("ended with exit code {}", bad->code), *bad, bad->code);
    return blame(fmt::format("was killed by {}", signal_name(bad->signal)), *bad, comm_code);
  }
  if (stopped != nullptr && seconds_until(stopped->since) < -patience)
    return blame("was stopped for too long", *stopped, comm_code);
  const Child* left = first_in(State::ended);
  const double allowed =
      passed_on_ != 0 ? std::max(options_.early_seconds, patience) : options_.early_seconds;
  if (left != nullptr && !all_ended() && seconds_until(left->since) < -allowed)
    blame(fmt::format("left too early, with exit code {}", left->code), *left, comm_code);
}

void Watch::blame(const std::string& sentence, const Child& child, int code) {
  if (verdict_ < 0) verdict_ = code;
  if (blamed_ == nullptr) blamed_ = &child;
  const char* hint = child.state == State::ended && child.signal == SIGKILL
                         ? "\n  why: somebody killed it, or the kernel did when memory ran out"
                         : "";
  say(fmt::format("braid: {} {}{}{}{}", name(child), sentence,
                  all_ended() ? "" : "; the other ranks are ended", hint, last_lines(child)));
  if (child.state != State::ended) return end_all();
  // SIGTERM would end a rank that is on its way out before it can say what it lost.
  ending_ = talking_ = true;
  ending_since_ = std::chrono::steady_clock::now();
}

// Rank 0 has the terminal: if it is lost, what the others found out is in their logs.
void Watch::tell_of_others() const {
  if (blamed_ == nullptr || !blamed_->log.empty() || blamed_->signal == 0) return;
  for (const Child& child : children_)
    if (child.code == comm_code)
      return say(fmt::format("braid: {} ended with exit code {}{}", name(child), child.code,
                             last_lines(child)));
}

void Watch::end_all() {
  ending_ = true;
  talking_ = false;
  ending_since_ = std::chrono::steady_clock::now();
  for (Child& child : children_) {
    if (child.state == State::ended) continue;
    child.asked = true;
    if (child.state == State::stopped)
      kill_group(child);  // it cannot hear
    else
      send(child, SIGTERM);
  }
}

void Watch::kill_all() {
  ending_ = killed_ = true;
  talking_ = false;
  for (Child& child : children_) {
    child.asked = true;
    if (child.state != State::ended) kill_group(child);
  }
}

bool Watch::all_ended() const {
  return std::all_of(children_.begin(), children_.end(),
                     [](const Child& child) { return child.state == State::ended; });
}

std::string Watch::name(const Child& child) const {
  return fmt::format("rank {} of {} (process {})", child.rank,
                     std::max(options_.here.world, options_.ranks), child.pid);
}

void Watch::say(const std::string& line) const {
  if (options_.say) return options_.say(line);
  std::fputs((line + "\n").c_str(), stderr);  // a terminal that is gone is no reason to end
}

int Watch::code() const {
  if (verdict_ >= 0) return verdict_;
  const bool interrupted = std::any_of(children_.begin(), children_.end(), [](const Child& child) {
    return child.code == interrupted_code;
  });
  return interrupted ? interrupted_code : 0;
}

}  // namespace

int spawn(const SpawnOptions& options) { return Watch(options).run(); }

std::vector<std::string> own_command() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  const std::string all{std::istreambuf_iterator<char>(in), {}};
  std::vector<std::string> words = {std::filesystem::read_symlink("/proc/self/exe").string()};
  bool value = false;  // the next word is that of --ranks
  for (size_t begin = all.find('\0') + 1; begin < all.size();) {
    const size_t end = std::min(all.find('\0', begin), all.size());
    const std::string word = all.substr(begin, end - begin);
    begin = end + 1;
    if (!value && word != "--ranks" && !word.starts_with("--ranks=")) words.push_back(word);
    value = !value && word == "--ranks";
  }
  return words;
}

}  // namespace braid::launch
