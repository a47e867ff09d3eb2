// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cstdint>
#include <functional>

namespace braid::data {

using Progress = std::function<void(int64_t done, int64_t total)>;

}  // namespace braid::data
