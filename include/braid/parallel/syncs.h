// SPDX-License-Identifier: BSD-3-Clause
// Several Syncs as one: for a rank that holds several stages of a pipeline, each with its own
// backward passes.
//
//   parallel::Syncs syncs(std::move(one_of_each_stage));
//   syncs.at(stage).hold(!last);   // before each backward pass of that stage
//   syncs.finish();                // of all stages
//   optimizer.step();              // over syncs.params()
//   syncs.publish();
#pragma once
#include <cstddef>
#include <memory>
#include <vector>

#include "braid/parallel/sync.h"

namespace braid::parallel {

class Syncs final : public Sync {
 public:
  // Their owners are the same. A parameter stands in one of them.
  explicit Syncs(std::vector<std::unique_ptr<Sync>> parts);

  size_t size() const { return parts_.size(); }
  Sync& at(size_t part) const;

  const std::vector<Param>& params() const override { return params_; }  // one part after the other
  const comm::Group& owners() const override;
  void hold(bool on) override;
  void finish() override;
  void publish() override;

 private:
  std::vector<std::unique_ptr<Sync>> parts_;
  std::vector<Param> params_;
  comm::Group alone_;
};

}  // namespace braid::parallel
