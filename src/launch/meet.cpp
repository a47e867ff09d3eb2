// SPDX-License-Identifier: BSD-3-Clause
#include "launch/meet.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "comm/sha256.h"

namespace braid::launch {
namespace {

namespace fs = std::filesystem;
constexpr const char* job_key = "braid/job";

// Tells tokens apart without telling what they are.
std::string fingerprint(const std::string& token, const char* purpose) {
  return comm::to_hex(comm::hmac_sha256(token, purpose)).substr(0, 32);
}

std::string line_of(const fs::path& file) {
  std::ifstream in(file);
  std::string line;
  std::getline(in, line);
  return line;
}

std::string network_name() {
  std::error_code ignored;
  return fs::read_symlink("/proc/self/ns/net", ignored).string();
}

std::string encode(const Seat& seat) {
  return fmt::format("{}\n{}\n{}\n{}\n{}\n{}", seat.host, seat.pid, seat.machine, seat.network,
                     seat.address, fmt::join(seat.cores, " "));
}

Seat decode(const std::string& text) {
  Seat seat;
  std::istringstream lines(text);
  for (std::string* part : {&seat.host, &seat.pid, &seat.machine, &seat.network, &seat.address})
    std::getline(lines, *part);
  for (int core = 0; lines >> core;) seat.cores.push_back(core);
  return seat;
}

std::string seat_key(int rank) { return fmt::format("here/{}", rank); }

struct MeetingPlace {
  std::string host;
  int port = 0;
};

ConfigError no_meeting_place(const Environment& here) {
  return ConfigError(
      {.what = fmt::format("rank {} of {} does not know where to meet the others", here.rank,
                           here.world),
       .why = "MASTER_ADDR and MASTER_PORT name the host of rank 0 and a free port there",
       .fix = "start with braid train --ranks N, torchrun or srun, or: export MASTER_ADDR=<host of "
              "rank 0> MASTER_PORT=29500"});
}

CommError not_our_store(const MeetingPlace& place, bool other_job) {
  return CommError(
      {.what = fmt::format("the store at {}:{} belongs to {}", place.host, place.port,
                           other_job ? "another job" : "no braid job"),
       .why =
           "ranks show a token of their job where they meet, and this rank's is not the one that "
           "was set there",
       .fix = "give each job a port of its own: export MASTER_PORT=<free port> on all its ranks"});
}

CommError broken_roll(const std::string& place, size_t seats, int world) {
  return CommError({.what = fmt::format("the text at roll in the store at {} has {} ranks, not {}",
                                        place, seats, world),
                    .why = "rank 0 writes there who has come",
                    .fix = "start all ranks of a job with the same version of braid"});
}

CommError missing_ranks(const std::vector<int>& missing, const Environment& here, double seconds) {
  return CommError({.what = fmt::format("rank {} of {} did not come within {:.0f} s",
                                        fmt::join(missing, ", "), here.world, seconds),
                    .why = "training begins when all ranks are there",
                    .fix = "look for what the missing ranks printed; if they start slowly, raise "
                           "launch.timeout"});
}

class Host {  // the way of one rank into a meeting
 public:
  Host(const Environment& here, const Options& options)
      : here_(here),
        limits_(timeouts(options)),
        deadline_(seconds_from_now(limits_.start)),
        options_(options) {}

  Meeting run() {
    const comm::Store open = open_store();
    if (of_torchrun()) show_token(open);
    Meeting meeting{.store = of_job(open, here_.token), .seats = {}};
    sit_down(meeting.store);
    meeting.seats = here_.rank == 0 ? call_roll(meeting.store) : hear_roll(meeting.store);
    if (meeting.seats.size() != static_cast<size_t>(here_.world))
      throw broken_roll(open.place(), meeting.seats.size(), here_.world);
    if (here_.rank == 0) open.shut();
    return meeting;
  }

 private:
  bool serves() const { return here_.rank == 0 && !here_.store_served; }
  // Ranks of mpirun on several hosts are told no address: rank 0 leaves its own in a file.
  bool by_file() const {
    return here_.launcher == Launcher::mpirun && here_.master_address.empty();
  }
  // A pod's name is known after the pod is there; ranks that a pod starts are those of --ranks.
  bool name_may_come() const {
    const bool others_elsewhere = here_.local_world < here_.world;
    return here_.launcher == Launcher::kubernetes ||
           (here_.launcher == Launcher::own && others_elsewhere);
  }
  // torchrun's agent serves one store to a job and to its restarts.
  bool of_torchrun() const { return here_.store_served && here_.launcher == Launcher::torchrun; }
  fs::path file() const {
    return fs::path(options_.meet_dir) / fmt::format(".braid-{}", fingerprint(here_.token, "file"));
  }

  comm::Store open_store() {
    if (here_.store_socket >= 0) {  // from the launcher of this host
      place_ = {.host = "127.0.0.1", .port = 9};
      return comm::Store::inherited(here_.store_socket, limits_.store);
    }
    if (options_.port != 0 && !here_.store_served)
      here_.master_port = static_cast<int>(options_.port);
    if (!by_file() && (here_.master_address.empty() || here_.master_port == 0))
      throw no_meeting_place(here_);
    return serves() ? serve() : connect();
  }

  comm::Store serve() {
    // Ranks of one host come by its name, too, which is seldom the address of loopback alone.
    const bool on_loopback = here_.master_address == "127.0.0.1";
    Descriptor socket = listen_at(by_file() ? 0 : here_.master_port, on_loopback);
    place_ = {.host = "127.0.0.1", .port = port_of(socket)};
    const comm::Store store = comm::Store::tcp({.host = place_.host,
                                                .port = place_.port,
                                                .server = true,
                                                .listener = socket.release(),
                                                .timeout_seconds = limits_.store,
                                                .token = here_.token});
    if (by_file()) leave_address();
    return store;
  }

  void leave_address() {
    std::vector<std::string> hosts = outer_addresses();
    if (!options_.interface.empty()) hosts = {address_of_interface(options_.interface)};
    if (!options_.address.empty()) hosts = {options_.address};
    if (hosts.empty()) hosts = {here_.host};
    make_dirs(options_.meet_dir);
    write_atomic(file(), fmt::format("{} {}\n", place_.port, fmt::join(hosts, " ")));
  }

  comm::Store connect() {
    std::vector<std::string> hosts = {here_.master_address};
    place_.port = here_.master_port;
    if (by_file()) place_.port = read_file(hosts);
    place_.host = wait_for_listener(hosts, place_.port, deadline_, name_may_come());
    const comm::TcpStoreOptions options = {.host = place_.host,
                                           .port = place_.port,
                                           .timeout_seconds = limits_.store,
                                           .token = here_.token};
    return of_torchrun() ? comm::Store::torchrun(options) : comm::Store::tcp(options);
  }

  int read_file(std::vector<std::string>& hosts) const {
    while (seconds_until(deadline_) > 0) {
      std::ifstream in(file());
      hosts.clear();
      int port = 0;
      in >> port;
      for (std::string host; in >> host;) hosts.push_back(host);
      if (!hosts.empty()) return port;
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    throw CommError(
        {.what = fmt::format("rank {} of {} finds no file {} of rank 0 within {:.0f} s", here_.rank,
                             here_.world, file().string(), limits_.start),
         .why = "mpirun does not tell its ranks where rank 0 is; rank 0 leaves its address in a "
                "folder that all hosts see",
         .fix = "mpirun -x MASTER_ADDR=<host of rank 0> -x MASTER_PORT=29500, or start in a shared "
                "folder"});
  }

  void show_token(const comm::Store& store) {
    if (here_.rank == 0) mark(store, here_.token);
    bool ours = shows_our_job(store);
    // Until rank 0 has come again, such a store shows the job as it was before the restart.
    while (!ours && seconds_until(deadline_) > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
      ours = shows_our_job(store);
    }
    if (!ours) throw not_our_store(place_, true);
  }

  bool shows_our_job(const comm::Store& store) const {
    try {
      return store.get(job_key, std::max(0.5, seconds_until(deadline_))) ==
             fingerprint(here_.token, "job");
    } catch (const CommError&) {
      if (store.has(job_key)) return false;  // of another job, or of a try before this one
      throw not_our_store(place_, false);
    }
  }

  void sit_down(const comm::Store& store) {
    Seat seat{.host = here_.host,
              .pid = std::to_string(::getpid()),
              .machine = line_of("/proc/sys/kernel/random/boot_id"),
              .network = network_name(),
              .address = address_towards(place_.host, place_.port),
              .cores = here_.cores};
    if (!store.claim(fmt::format("claim/{}", here_.rank))) {
      const Seat other = decode(store.get(seat_key(here_.rank), limits_.store));
      throw CommError(
          {.what = fmt::format("rank {} is there already: process {} on {}", here_.rank, other.pid,
                               other.host),
           .why = "each rank of a job has a number of its own",
           .fix = "give each job a port of its own (MASTER_PORT) and each process a RANK"});
    }
    store.set(seat_key(here_.rank), encode(seat));
  }

  std::vector<Seat> call_roll(const comm::Store& store) {
    std::vector<int> missing;
    std::string roll;
    for (int rank = 0; rank < here_.world; ++rank) {
      const std::string text = wait_for_seat(store, rank);
      if (text.empty()) missing.push_back(rank);
      roll += text + '\0';
    }
    if (by_file()) std::filesystem::remove(file());
    store.set("roll", missing.empty() ? roll : fmt::format("-{}", fmt::join(missing, " ")));
    if (missing.empty()) return seats_of(roll);
    if (serves()) std::this_thread::sleep_for(std::chrono::seconds(1));  // the others hear of it
    throw missing_ranks(missing, here_, limits_.start);
  }

  // Empty: it did not come in time.
  std::string wait_for_seat(const comm::Store& store, int rank) const {
    const double left = seconds_until(deadline_);
    if (left <= 0) return store.has(seat_key(rank)) ? store.get(seat_key(rank), 1) : "";
    try {
      return store.get(seat_key(rank), left);
    } catch (const CommError&) {
      return "";
    }
  }

  std::vector<Seat> hear_roll(const comm::Store& store) const {
    std::vector<int> missing;
    try {
      const std::string roll = store.get("roll", std::max(1.0, seconds_until(deadline_) + 2));
      if (!roll.starts_with('-')) return seats_of(roll);
      std::istringstream numbers(roll.substr(1));
      for (int rank = 0; numbers >> rank;) missing.push_back(rank);
    } catch (const CommError&) {
      for (int rank = 0; rank < here_.world; ++rank)
        if (!store.has(seat_key(rank))) missing.push_back(rank);
    }
    throw missing_ranks(missing, here_, limits_.start);
  }

  std::vector<Seat> seats_of(const std::string& roll) const {
    std::vector<Seat> seats;
    for (size_t begin = 0; begin < roll.size();) {
      const size_t end = std::min(roll.find('\0', begin), roll.size());
      seats.push_back(decode(roll.substr(begin, end - begin)));
      begin = end + 1;
    }
    return seats;
  }

  Environment here_;
  comm::Timeouts limits_;
  Instant deadline_;
  Options options_;
  MeetingPlace place_ = {};
};

}  // namespace

void mark(const comm::Store& store, const std::string& token) {
  store.set(job_key, fingerprint(token, "job"));
}

comm::Store of_job(const comm::Store& store, const std::string& token) {
  return store.under("braid/" + fingerprint(token, "keys"));
}

Meeting meet(const Environment& here, const Options& options) { return Host(here, options).run(); }

std::string best_address(const std::vector<Seat>& seats, const Environment& here,
                         const Options& options) {
  if (!options.address.empty()) return options.address;
  if (!options.interface.empty()) return address_of_interface(options.interface);
  const Seat& mine = seats[static_cast<size_t>(here.rank)];
  if (!is_loopback(mine.address)) return mine.address;
  // The name of rank 0's host is a loopback address on that host itself. Others came from outside.
  for (const Seat& other : seats)
    if (other.network != mine.network && !is_loopback(other.address))
      return address_towards(other.address, 9);
  return mine.address;
}

int share_of_cores(const std::vector<Seat>& seats, int rank) {
  const Seat& mine = seats[static_cast<size_t>(rank)];
  std::map<int, int> users;
  for (const Seat& seat : seats)
    if (seat.machine == mine.machine)
      for (const int core : seat.cores) ++users[core];
  double share = 0;
  for (const int core : mine.cores) share += 1.0 / users[core];
  return std::max(1, static_cast<int>(share + 1e-9));
}

}  // namespace braid::launch
