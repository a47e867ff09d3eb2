// SPDX-License-Identifier: BSD-3-Clause
// What kind of kernel an operator is, and how many bytes it really moves.
#pragma once
#include <cstdint>
#include <optional>
#include <string_view>

#include "braid/memory/operator_log.h"

namespace braid::plan {

enum class Work : uint8_t {
  view,     // no kernel
  nothing,  // memory is taken, not touched
  fill,     // written, nothing read
  pointwise,
  copy,  // also casts; slower where elements are not in order
  reduce,
  norm,
  norm_backward,
  softmax,
  softmax_backward,
  lookup,   // rows that an index names are read
  scatter,  // rows that an index names are added to
  sort,
  scan,
  update,  // of a list of tensors, chunk by chunk
  mask,    // drawn from a key
  loss,    // rows of scores, read once
  loss_backward,
  gemm,
  batched,
  grouped,
  convolution,
  convolution_backward,
  attention,
  attention_backward,
};
std::string_view to_text(Work work);  // as curves are called

// How the bytes of a kernel follow from the tensors of an operator.
enum class Moves : uint8_t {
  all,       // inputs and outputs, each once
  written,   // outputs alone
  twice,     // outputs, read once more from somewhere: copies, rows of a table
  updated,   // inputs read and written
  read,      // inputs alone
  last_too,  // all, and the last input is written as well
  adam,      // four of parameter, gradient and states are read, three written
  nothing,
};

struct OpKind {
  Work work = Work::pointwise;
  Moves moves = Moves::all;
  int kernels = 1;
};

// Empty for an operator that is not known.
std::optional<OpKind> kind_of(std::string_view name);
double bytes_moved(const OpKind& kind, const memory::Operator& op);

}  // namespace braid::plan
