// SPDX-License-Identifier: BSD-3-Clause
// Whether a manifest can be true: sizes, boxes, places and names of everything it lists. A hash
// proves that a manifest is as it was written, not who wrote it.
#pragma once
#include <string>

#include "checkpoint/manifest.h"

namespace braid::checkpoint {

// Throws JsonFault with the first thing that is wrong.
void check_manifest(const Manifest& manifest);
// The name of a file in the same folder: no path, no control characters.
bool is_plain_name(const std::string& name);

}  // namespace braid::checkpoint
