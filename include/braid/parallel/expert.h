// SPDX-License-Identifier: BSD-3-Clause
// Expert parallelism: each rank of an axis holds some experts; rows of tokens, sorted by expert,
// travel to them and back. They travel while the caller computes something else, in the backward
// pass as well: what stands between start and arrive() there stands between them here.
//
//   // 64 rows for each of 8 experts
//   parallel::ExpertRows rows = parallel::even_rows(expert_axis, 8, 64);
//   parallel::Travel there = parallel::to_experts(x, rows);
//   at::Tensor shared = up(x);                         // meanwhile
//   parallel::Travel back = parallel::from_experts(experts(there.arrive()), rows);
#pragma once
#include <cstdint>
#include <memory>

#include <ATen/core/Tensor.h>

#include "braid/comm/differentiable.h"
#include "braid/comm/group.h"

namespace braid::parallel {

// How many rows go where. Expert e is on rank e / (experts / ranks).
struct ExpertRows {
  comm::Group group = {};
  int64_t experts = 0;         // of all ranks
  int64_t each = 0;            // rows that every rank has for every expert; 0: counted
  comm::Counts sent = {};      // counted: rows to each rank
  comm::Counts received = {};  // and from each
  at::Tensor offsets = {};     // counted: where the rows of each expert that is here end, int32
  at::Tensor order = {};       // counted, of what arrives: which row comes where, by expert
  at::Tensor inverse = {};

  bool even() const { return each > 0; }
  int64_t experts_here() const { return experts / group.size(); }
  int64_t rows_sent() const;
  int64_t rows_received() const;
};

// Every rank has `each` rows for every expert: nothing is read on the host.
ExpertRows even_rows(const comm::Group& group, int64_t experts, int64_t each);
// counts: rows of each expert on this rank, int64 [experts]; `most`: an upper bound of their sum.
// With more than one rank the counts of all ranks are exchanged and read on the host: shapes depend
// on them. In a dry run `most` rows are as even as they go. With one rank nothing is read.
ExpertRows counted_rows(const comm::Group& group, const at::Tensor& counts, int64_t most);

struct ExpertLeg;

// Rows under way.
class Travel {
 public:
  // The rows of this rank's experts: even [experts here, rows, width], counted [rows, width] sorted
  // by expert; back home: [rows sent, width].
  at::Tensor arrive();

 private:
  friend Travel to_experts(const at::Tensor& x, const ExpertRows& rows);
  friend Travel from_experts(const at::Tensor& y, const ExpertRows& rows);
  at::Tensor tensor_;
  std::shared_ptr<ExpertLeg> leg_;  // null: it is there already
  ExpertRows rows_;
  bool home_ = false;
};

Travel to_experts(const at::Tensor& x, const ExpertRows& rows);    // x [rows sent, width]
Travel from_experts(const at::Tensor& y, const ExpertRows& rows);  // y as arrive() gave it

}  // namespace braid::parallel
