// SPDX-License-Identifier: BSD-3-Clause
// A plan beside the real step on the device that is here: bytes by kind, what the allocator holds,
// and the time of a step.
//
//   plan::Verified seen = plan::verify(options, {.device = c10::kCPU});
//   std::cout << plan::to_text(seen);
//   return seen.holds() ? 0 : 1;
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <c10/core/Device.h>

#include "braid/plan/cluster.h"
#include "braid/train/options.h"
#include "braid/train/ranks.h"

namespace braid::plan {

struct VerifyRow {
  std::string name;
  double predicted = 0, measured = 0;
  bool bytes = true;    // else seconds
  bool judged = false;  // a number that a plan is held to
  double off() const;   // share of the predicted one
};

struct Verified {
  int64_t rank = 0, world = 1;
  std::string device, layout;
  std::vector<VerifyRow> rows;
  bool holds(double share = 0.05) const;  // no judged number is off by more
};

struct VerifyOptions {
  c10::Device device = c10::kCPU;
  const train::Ranks* ranks = nullptr;  // all of them together; null: one process
  const Cluster* cluster = nullptr;     // to predict time; null: it is measured alone
  int steps = 5;                        // timed, after one that is not
};

Verified verify(const train::RunOptions& options, const VerifyOptions& how = {});
std::string to_text(const Verified& verified);
std::string to_json(const Verified& verified);

}  // namespace braid::plan
