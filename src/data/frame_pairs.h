// SPDX-License-Identifier: BSD-3-Clause
// Which frames are inputs: those whose target, `step` frames later, follows without a gap.
// Internal.
//
//   const FramePairs pairs(files, options);
//   files.place(pairs.input(7));          // the input of sample 7; its target is pairs.target(7)
#pragma once
#include <cstdint>
#include <vector>

#include "data/fields.h"

namespace braid::data {

class FramePairs {
 public:
  FramePairs(const FieldFiles& files, const DataOptions& options);  // throws DataError

  int64_t size() const;
  int64_t input(int64_t index) const;  // a global frame of the files
  int64_t target(int64_t index) const { return input(index) + step_; }

 private:
  void take_all(const std::vector<bool>& next_follows);
  void check_reference(const std::vector<bool>& next_follows) const;

  const FieldFiles& files_;
  int64_t step_ = 1;
  bool reference_ = false;
  std::vector<int64_t> inputs_;  // empty with data.pairs = reference, whose inputs are counted
};

// For each frame of all files: does the next frame directly follow it? Within a file yes, unless
// its times say otherwise; across files only if their times say so.
std::vector<bool> frames_followed(const FieldFiles& files);

}  // namespace braid::data
