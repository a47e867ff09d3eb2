// SPDX-License-Identifier: BSD-3-Clause
#include "braid/train/out_of_memory.h"

#include <c10/util/Exception.h>
#include <fmt/format.h>

#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <thread>
#include <utility>

#include "braid/core/fs.h"
#include "braid/core/units.h"
#include "braid/train/expected.h"
#include "braid/train/memory_files.h"
#include "braid/train/trainer.h"

namespace braid::train {
namespace {

namespace fs = std::filesystem;

std::string plain_text(const std::exception& error) {
  const auto* torch = dynamic_cast<const c10::Error*>(&error);
  return torch != nullptr ? torch->what_without_backtrace() : error.what();
}

bool has_words(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    if (text.find(word) != std::string::npos) return true;
  return false;
}

bool is_no_room(const std::exception& error, const std::string& text) {
  if (dynamic_cast<const Error*>(&error) != nullptr) return false;  // it says what it is itself
  return dynamic_cast<const std::bad_alloc*>(&error) != nullptr ||
         dynamic_cast<const c10::OutOfMemoryError*>(&error) != nullptr ||
         has_words(text, {"can't allocate memory", "not enough memory", "CUDA out of memory",
                          "ALLOC_FAILED", "cudaErrorMemoryAllocation"});
}

// "Tried to allocate 2.00 GiB", "you tried to allocate 4096 bytes": 0 where there is no such word.
int64_t bytes_said(const std::string& text) {
  const std::string before = "ried to allocate ";
  const size_t at = text.find(before);
  if (at == std::string::npos) return 0;
  size_t end = text.find_first_not_of("0123456789.", at + before.size());
  if (end == std::string::npos) return 0;
  const size_t unit = text.find_first_of(". ,\n", end + 1);
  std::string amount = text.substr(at + before.size(), unit - at - before.size());
  if (const size_t word = amount.find("bytes"); word != std::string::npos)
    amount.replace(word, 5, "B");
  const auto parsed = parse_bytes(amount);
  return parsed ? parsed->count : 0;
}

// What the host has, or what this process may take of it (ulimit -v).
int64_t host_memory() {
  const int64_t ram = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGESIZE);
  struct rlimit may = {};
  if (::getrlimit(RLIMIT_AS, &may) != 0 || may.rlim_cur == RLIM_INFINITY) return ram;
  return std::min(ram, static_cast<int64_t>(may.rlim_cur));
}

void find_limit(NoRoom& failed, const RunOptions& options, c10::Device device) {
  Accelerator* gpu = device.is_cuda() ? accelerator() : nullptr;
  if (gpu != nullptr) failed.allocator = gpu->memory(device.index());
  failed.limit = options.memory.limit.count;
  failed.limit_of = "memory.limit";
  if (failed.limit > 0) return;
  failed.limit = gpu != nullptr ? gpu->total_bytes(device.index()) : host_memory();
  failed.limit_of = gpu != nullptr ? "all of " + gpu->name(device.index()) : "the host's memory";
}

std::string named_report(const Ranks& ranks) {
  return ranks.alone() ? "out_of_memory.json"
                       : fmt::format("out_of_memory.rank{}.json", ranks.mesh.rank());
}

constexpr const char* report_text = "out_of_memory/report.txt";

// One rank of those that fail together reports: the one that makes the folder.
bool claim(const fs::path& dir) {
  make_dirs(dir);
  return fs::create_directory(dir / "out_of_memory");
}

// Until that rank has written it: a launcher ends all ranks when the first one leaves.
void await_report(const fs::path& dir) {
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (std::chrono::steady_clock::now() < end) {
    for (const fs::directory_entry& entry : fs::directory_iterator(dir)) {
      const std::string name = entry.path().filename().string();
      if (name.starts_with("out_of_memory.") && name.ends_with(".json")) return;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

// An allocator of a GPU leaves gaps.
int64_t usable(int64_t limit, c10::Device device) {
  return device.is_cuda() ? limit / 100 * 95 : limit;
}

MemoryReport make_report(NoRoom failed, const MemoryScene& scene) {
  const auto start = std::chrono::steady_clock::now();
  const MeasureOptions how = measure_as(scene.options, scene.ranks);
  MemoryReport report{.failed = std::move(failed),
                      .rank = static_cast<int>(scene.ranks.mesh.rank()),
                      .ranks = static_cast<int>(scene.ranks.mesh.world()),
                      .device = memory::to_text(memory::place_of(how.device)),
                      .predicted = std::nullopt,
                      .changes = {}};
  if (scene.options.model.name == nn::ModelName::own) return report;
  report.predicted = predict_peak(scene.options, how);
  if (!report.failed.counted) report.failed.alive = report.predicted->peak;
  report.changes = changes_to_fit(scene.options, how, usable(report.failed.limit, how.device));
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return report;
}

void write_files(const MemoryReport& report, const MemoryScene& scene, const fs::path& dir) {
  const MeasureOptions how = measure_as(scene.options, scene.ranks);
  const bool counted = report.failed.counted;
  write_atomic(dir / named_report(scene.ranks), to_json(report) + "\n");
  if (!counted && !report.predicted) return;
  memory::Ledger dry;
  if (!counted) watch_step(dry, scene.options, how);
  write_memory_files(
      counted ? *scene.ranks.ledger : dry, memory::place_of(how.device), dir / "out_of_memory",
      {.rank = report.rank,
       .reserved = report.failed.allocator.reserved,
       .did_not_fit = report.failed.asked.bytes,
       .limit = report.failed.limit,
       .during = counted ? report.failed.during : "a dry run of the step that did not fit"});
}

void tell(const MemoryScene& scene, const std::string& text) {
  if (scene.log != nullptr) return scene.log->warning(text);
  std::fputs((text + "\n").c_str(), stderr);
}

// The terminal shows what the first rank says: it says the report of the one that was faster.
std::string report_of_another(const MemoryScene& scene, const fs::path& dir) {
  await_report(dir);
  if (scene.ranks.first()) {
    std::ifstream file(dir / report_text);
    tell(scene, std::string(std::istreambuf_iterator<char>(file), {}));
  }
  return fmt::format("see the report of another rank in {}", dir.string());
}

// The report is help: whatever goes wrong while it is made must not hide why the run ended.
std::string report_once(NoRoom failed, const MemoryScene& scene) {
  const fs::path dir = run_dir(scene.options);
  try {
    if (!claim(dir)) return report_of_another(scene, dir);
    const MemoryReport report = make_report(std::move(failed), scene);
    const std::string text = to_text(report);
    tell(scene, text);
    write_atomic(dir / report_text, text);
    write_files(report, scene, dir);
    for (const Change& change : report.changes)
      if (change.fits)
        return fmt::format("{}; more in {}", change.sets,
                           (dir / named_report(scene.ranks)).string());
    return fmt::format("a smaller model or more ranks; see {}",
                       (dir / named_report(scene.ranks)).string());
  } catch (const std::exception& error) {
    return fmt::format("a smaller train.micro_batch (there is no report: {})", plain_text(error));
  }
}

std::string amount(int64_t bytes) { return bytes > 0 ? to_text(Bytes{bytes}) : "a tensor"; }

}  // namespace

std::optional<NoRoom> no_room(const std::exception& error, const MemoryScene& scene) {
  const std::string text = plain_text(error);
  if (!is_no_room(error, text)) return std::nullopt;
  NoRoom failed;
  failed.during = scene.during ? scene.during() : "";
  failed.said = text.substr(0, text.find('\n'));
  failed.asked.bytes = bytes_said(text);
  const c10::Device device = device_of(scene.options.train, scene.ranks.gpu);
  find_limit(failed, scene.options, device);
  const memory::Ledger* ledger = scene.ranks.ledger.get();
  failed.counted = ledger != nullptr;
  if (ledger != nullptr) failed.alive = ledger->last(memory::place_of(device));
  if (const auto* refused = dynamic_cast<const memory::DoesNotFit*>(&error)) {
    failed.asked = refused->asked;
    failed.limit = refused->limit;
  }
  return failed;
}

MemoryError out_of_memory(NoRoom failed, const MemoryScene& scene) {
  const std::string who =
      scene.ranks.alone() ? "" : fmt::format("rank {}: ", scene.ranks.mesh.rank());
  const std::string of =
      failed.asked.op.empty()
          ? ""
          : fmt::format(" for {}{}", failed.asked.op,
                        failed.asked.module.empty() ? "" : " of " + failed.asked.module);
  const std::string what =
      fmt::format("{}out of memory{}: {}{} did not fit into {} ({})", who,
                  failed.during.empty() ? "" : " in " + failed.during, amount(failed.asked.bytes),
                  of, to_text(Bytes{failed.limit}), failed.limit_of);
  const std::string why = failed.counted
                              ? fmt::format("{} were alive", to_text(Bytes{failed.alive.bytes}))
                              : failed.said;
  return MemoryError({.what = what, .why = why, .fix = report_once(std::move(failed), scene)});
}

MemoryError nothing_fits(const RunOptions& options, const Ranks& ranks, const Room& room,
                         bool here) {
  if (!here)
    return MemoryError({.what = "not even one sample fits into the memory of another rank",
                        .why = "train.micro_batch = auto finds the size for all ranks",
                        .fix = "see what that rank says"});
  NoRoom failed;
  failed.during = "a dry run before the first step";
  failed.limit = room.whole;
  failed.limit_of = room.of;
  const int64_t peak = predict_peak(options, measure_as(options, ranks)).bytes;
  const MemoryScene scene{.options = options, .ranks = ranks};
  return MemoryError(
      {.what = fmt::format("{}train.micro_batch = auto: not even one sample fits, predicted peak "
                           "{} of {} ({})",
                           ranks.alone() ? "" : fmt::format("rank {}: ", ranks.mesh.rank()),
                           to_text(Bytes{peak}), to_text(Bytes{room.whole}), room.of),
       .why = "weights, gradients, states and one sample are alive together",
       .fix = report_once(std::move(failed), scene)});
}

void forget_memory_reports(const RunOptions& options, const Ranks& ranks) {
  const fs::path dir = run_dir(options);
  std::error_code ignored;
  if (ranks.first()) {
    fs::remove_all(dir / "out_of_memory", ignored);
    for (const fs::directory_entry& entry : fs::directory_iterator(dir, ignored))
      if (entry.path().filename().string().starts_with("out_of_memory."))
        fs::remove(entry.path(), ignored);
  }
  ranks.control.barrier().wait();
}

std::shared_ptr<memory::Ledger> limited_memory(const RunOptions& options, c10::Device device) {
  const int64_t limit = options.memory.limit.count;
  if (limit == 0) return ledger_for_plan(run_dir(options), device);
  auto ledger = std::make_shared<memory::Ledger>();
  if (device.is_cuda())
    accelerator()->limit_memory(device.index(), limit);
  else
    ledger->limit(memory::place_of(device), limit);
  return ledger;
}

}  // namespace braid::train
