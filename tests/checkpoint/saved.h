// SPDX-License-Identifier: BSD-3-Clause
// A checkpoint that is on the disk when the call returns.
#pragma once
#include <filesystem>

#include "braid/checkpoint/store.h"

namespace braid::checkpoint {

inline std::filesystem::path saved(Store& store, const Snapshot& snapshot) {
  std::filesystem::path made = store.save(snapshot);
  store.wait();
  return made;
}

}  // namespace braid::checkpoint
