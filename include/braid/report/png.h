// SPDX-License-Identifier: BSD-3-Clause
// Fields as pictures: panels side by side in the turbo colour map with titles, as PNG bytes.
#pragma once
#include <string>

#include "braid/core/record.h"

namespace braid::report {

// 1200 x 600 pixels for two panels of 2:1 fields; all panels share one scale of colours.
std::string png_of(const PictureRecord& picture, int64_t width = 1200, int64_t height = 600);

}  // namespace braid::report
