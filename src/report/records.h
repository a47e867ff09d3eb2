// SPDX-License-Identifier: BSD-3-Clause
// Records as lines of log.jsonl, and back. The names of the fields are those of core/record.h.
#pragma once
#include <filesystem>
#include <string>
#include <vector>

#include "braid/core/record.h"
#include "report/ranks.h"

namespace braid::report {

// One JSON object without a line end; a number that is not finite becomes null.
std::string to_line(const RunInfo& info);
std::string to_line(const StepRecord& record);
std::string to_line(const EpochRecord& record);
std::string to_line(const ValidRecord& record);
std::string to_line(const EventRecord& record);
std::string to_line(const EndRecord& record);

// All that a log.jsonl says; of a resumed run the parts are one.
struct RunLog {
  RunInfo info;  // the last start
  std::vector<StepRecord> steps;
  std::vector<RankSpread> spreads;  // of the steps of worlds too big for StepRecord::ranks
  std::vector<EpochRecord> epochs;
  std::vector<ValidRecord> valids;
  std::vector<EventRecord> events;
  std::vector<EndRecord> ends;
};

// Throws DataError if the file is missing, holds no run, or has a broken line; a last line without
// its end (the run was killed while writing it, or writes it now) is passed over.
RunLog read_log(const std::filesystem::path& file);

// The lines of a log up to and including `step`, without unreadable ones: what a run that goes on
// from there keeps.
std::string lines_until(const std::filesystem::path& file, int64_t step);

}  // namespace braid::report
