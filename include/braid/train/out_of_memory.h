// SPDX-License-Identifier: BSD-3-Clause
// A run that asks for more memory than there is ends with a report: what did not fit, what was
// alive, and which changes of the config would make it fit.
//
//   return train::reporting_memory({.options = options, .ranks = ranks, .log = &log},
//                                  [&] { return trainer.fit(); });   // throws MemoryError
#pragma once
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "braid/core/accelerator.h"
#include "braid/core/error.h"
#include "braid/core/log.h"
#include "braid/memory/instruments.h"
#include "braid/memory/ledger.h"
#include "braid/train/fit.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"

namespace braid::train {

// Where memory may run out.
struct MemoryScene {
  const RunOptions& options;
  const Ranks& ranks;
  Log* log = nullptr;                        // gets the report; null: stderr
  std::function<std::string()> during = {};  // e.g. "step 3, backward"
};

// An allocation that failed.
struct NoRoom {
  memory::Held asked;      // bytes 0: not known
  std::string during;      // what the run did
  std::string said;        // by the allocator
  memory::Peak alive;      // then
  bool counted = false;    // by a ledger; else `alive` is the peak of a dry run of the same step
  int64_t limit = 0;       // bytes
  std::string limit_of;    // memory.limit, memory of cuda:0, ...
  DeviceMemory allocator;  // of a GPU
};
std::optional<NoRoom> no_room(const std::exception& error, const MemoryScene& scene);

struct MemoryReport {
  NoRoom failed;
  int rank = 0, ranks = 1;
  std::string device;
  std::optional<Predicted> predicted;  // of the config as it is; none: of a model that is the
                                       // program's own nothing can be said
  std::vector<Change> changes;
  double seconds = 0;  // that the dry runs took
};
std::string to_text(const MemoryReport& report);  // at most some 40 lines
std::string to_json(const MemoryReport& report);

// Writes the report, once a run: to the log, out_of_memory.json and out_of_memory/ in the run's
// folder. What failed must be freed by now.
MemoryError out_of_memory(NoRoom failed, const MemoryScene& scene);
// The same before anything was taken: the smallest micro-batch is too large. `here`: on this rank.
MemoryError nothing_fits(const RunOptions& options, const Ranks& ranks, const Room& room,
                         bool here);
// Reports of earlier runs in this folder are gone after it. All ranks together.
void forget_memory_reports(const RunOptions& options, const Ranks& ranks);

// Counts a rank's memory and refuses what goes beyond memory.limit; null without a limit, unless
// a plan wants the count (train/expected.h). On a GPU its allocator refuses.
std::shared_ptr<memory::Ledger> limited_memory(const RunOptions& options, c10::Device device);

// Runs `body` under the ledger of the ranks, if there is one.
template <class Body>
auto reporting_memory(const MemoryScene& scene, const Body& body) {
  std::optional<NoRoom> failed;
  try {
    std::unique_ptr<memory::Instruments> counting;
    if (scene.ranks.ledger != nullptr)
      counting = std::make_unique<memory::Instruments>(
          memory::InstrumentOptions{.ledger = scene.ranks.ledger.get()});
    return body();
  } catch (const std::exception& error) {
    failed = no_room(error, scene);
    if (!failed) throw;
  }
  throw out_of_memory(std::move(*failed), scene);  // here: what failed is freed
}

}  // namespace braid::train
