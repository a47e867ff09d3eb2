// SPDX-License-Identifier: BSD-3-Clause
// A loop in parts, on the threads of torch's math (at::set_num_threads).
//
//   in_parts(values.numel(), 4096, [&](int64_t begin, int64_t end) {
//     for (int64_t i = begin; i < end; ++i) out[i] = f(i);
//   });
#pragma once
#include <cstdint>

#include <c10/util/FunctionRef.h>

namespace braid {

// Parts have at least `grain` elements, but for the last one. What an element becomes must not
// depend on the part it is in.
void in_parts(int64_t count, int64_t grain, c10::function_ref<void(int64_t, int64_t)> body);

}  // namespace braid
