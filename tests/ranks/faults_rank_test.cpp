// SPDX-License-Identifier: BSD-3-Clause
// The ranks of the fault tests, as processes: a run as `braid train` makes it, with an accident at
// one rank when the run comes to a certain place.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include "braid/core/fs.h"
#include "braid/launch/environment.h"
#include "braid/launch/spawn.h"
#include "braid/train/job.h"
#include "braid/train/session.h"
#include "ranks/faulty_rank.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

std::string fault_variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

constexpr unsigned hearing_time = 1'000'000;  // us, after which the others know where a rank stands

struct LeavesEarly {};  // thrown to leave the training as if it were done

class Accident {
 public:
  Accident(fs::path dir, fs::path run_dir, int rank)
      : dir_(std::move(dir)),
        checkpoints_(run_dir / "checkpoints"),
        run_dir_(std::move(run_dir)),
        kind_(std::stoi("0" + fault_variable("FAULT_RANK")) == rank ? fault_variable("FAULT_KIND")
                                                                    : ""),
        at_(fault_variable("FAULT_AT")),
        disk_fault_(fault_variable("FAULT_KIND") == "small_files" ||
                    fault_variable("FAULT_KIND") == "fill_disk") {}

  void progress(const std::string& what) {
    now_ = what;
    if (what.starts_with("step ")) await_checkpoint(std::stoi(what.substr(5)));
    come_to(what);
  }
  void phase(const char* what) { come_to(now_ + "/" + what); }
  // At the start: a model of another shape than on the other ranks.
  void reshape(train::RunOptions& options) const {
    if (kind_ != "shape") return;
    options.model.mlp.hidden.back() += 1;
    note_time();
  }

 private:
  // In the second step after a checkpoint all ranks wait until it is whole: so a test knows which
  // one is the last.
  void await_checkpoint(int step) const {
    if (step % 5 != 2 || step < 5 || disk_fault_) return;
    std::string number = std::to_string(step - 2);
    number.insert(0, 8 - number.size(), '0');
    const fs::path manifest = checkpoints_ / ("step-" + number) / "manifest.json";
    for (int i = 0; i < 500 && !fs::exists(manifest); ++i) usleep(5000);
  }

  void come_to(const std::string& place) {
    if (kind_.empty() || place != at_) return;
    if (kind_ == "kill_writing") return kill_when_writing();
    if (kind_ == "await_go") return await_go();
    if (kind_ == "kill" || kind_ == "stop" || kind_ == "exit") usleep(hearing_time);
    note_time();
    if (kind_ == "kill") raise(SIGKILL);
    if (kind_ == "stop") raise(SIGSTOP);
    if (kind_ == "exit") _exit(0);
    if (kind_ == "return") throw LeavesEarly();
    if (kind_ == "hang") pause_for_ever();
    if (kind_ == "fill_disk") fill_disk();
    if (kind_ == "small_files") limit_files();
    if (kind_ == "throw")
      throw NotFiniteError({.what = "the loss is nan at step 12", .why = "planted", .fix = "none"});
  }

  void note_time() const {
    std::ofstream(dir_ / "fault.new") << std::to_string(wall_now());
    fs::rename(dir_ / "fault.new", dir_ / "fault");
  }

  [[noreturn]] static void pause_for_ever() {
    while (true) pause();
  }

  // The shards are being written by another thread.
  void kill_when_writing() const {
    std::thread([this] {
      while (true)
        for (const auto& entry : fs::directory_iterator(checkpoints_))
          if (entry.path().string().find(".tmp-") != std::string::npos) {
            note_time();
            raise(SIGKILL);
          }
    }).detach();
  }

  void fill_disk() const {
    const std::string some(4096, 'x');
    const int file = open((run_dir_ / "filler").c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    while (write(file, some.data(), some.size()) > 0) {
    }
    close(file);
  }

  static void limit_files() {
    signal(SIGXFSZ, SIG_IGN);
    const struct rlimit small = {.rlim_cur = 1024, .rlim_max = RLIM_INFINITY};
    if (setrlimit(RLIMIT_FSIZE, &small) != 0) std::abort();
  }

  void await_go() const {
    usleep(hearing_time);
    std::ofstream(dir_ / "there") << "yes" << std::flush;
    while (!fs::exists(dir_ / "go")) usleep(2000);
    note_time();
  }

  fs::path dir_, checkpoints_, run_dir_;
  std::string kind_, at_, now_;
  bool disk_fault_;  // on any rank: the checkpoint will not come
};

train::Ranks with_accidents(train::Ranks ranks, Accident& accident) {
  ranks.progress = [&accident, before = ranks.progress](const std::string& what) {
    before(what);
    accident.progress(what);
  };
  ranks.phase = [&accident, before = ranks.phase](const char* what) {
    before(what);
    accident.phase(what);
  };
  return ranks;
}

int train_with_accidents(const std::string& dir) {
  train::RunOptions options = train::load_run(dir + "/run.yaml");
  const launch::Environment here = launch::environment();
  Accident accident(dir, train::run_dir(options), here.rank);
  accident.reshape(options);
  train::Job job(options, here);
  train::Session session;
  const EndRecord end = job.watched([&] {
    session = train::open_session(options, {.ranks = with_accidents(job.ranks(), accident),
                                            .resume = !fault_variable("FAULT_RESUME").empty(),
                                            .quiet = true});
    try {
      return session.trainer->fit();
    } catch (const LeavesEarly&) {
      return EndRecord{};
    }
  });
  return static_cast<int>(end.reason == "signal" ? Exit::interrupted : Exit::ok);
}

// Exit code and words as those of the command.
int code_of_rank(const std::string& dir) {
  try {
    return train_with_accidents(dir);
  } catch (const train::LostRanks& error) {
    return static_cast<int>(error.code());
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    std::fprintf(stderr, "braid: %s\n", error.what());
    return static_cast<int>(Exit::internal);
  }
}

[[noreturn]] void end_process(int code) {
  std::fflush(nullptr);
  std::_Exit(code);
}

TEST(FaultyRank, DISABLED_Rank) {
  const std::string dir = fault_variable("FAULT_DIR");
  if (dir.empty()) GTEST_SKIP() << "a body for the fault tests";
  end_process(code_of_rank(dir));
}

TEST(FaultyRank, DISABLED_Launcher) {
  const std::string dir = fault_variable("FAULT_DIR");
  if (dir.empty()) GTEST_SKIP() << "a body for the fault tests";
  std::vector<std::string> command = again("FaultyRank.DISABLED_Rank");
  command.push_back(dir);
  const train::RunOptions options = train::load_run(dir + "/run.yaml");
  end_process(launch::spawn({.ranks = 3,
                             .command = command,
                             .log_dir = train::run_dir(options) + "/logs",
                             .here = launch::environment(),
                             .launch = options.launch}));
}

}  // namespace
}  // namespace braid::test
