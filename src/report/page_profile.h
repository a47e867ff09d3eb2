// SPDX-License-Identifier: BSD-3-Clause
// What the section "Profile" of report.html shows of a run: summary.json and rank0_memory.json of
// its folder profile/.
#pragma once
#include <filesystem>

#include "report/page_json.h"

namespace braid::report {

// null: there is no such folder, or neither file in it. Throws DataError if one is not what it
// should be.
PageJson profile_json(const std::filesystem::path& dir);

}  // namespace braid::report
