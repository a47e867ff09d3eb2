// SPDX-License-Identifier: BSD-3-Clause
// The newest checkpoint that all ranks can read.
//
//   std::optional<Found> found = find_newest(dir, world, [&](const Reader& r) { r.fill(wanted); });
#pragma once
#include <filesystem>
#include <optional>

#include "braid/checkpoint/store.h"

namespace braid::checkpoint {

std::optional<Found> find_newest(const std::filesystem::path& dir, const comm::Group& world,
                                 const Store::Take& take);

// Step, metrics, values and config.
Snapshot without_tensors(const Reader& reader);

}  // namespace braid::checkpoint
