// SPDX-License-Identifier: BSD-3-Clause
#include "braid/parallel/syncs.h"

#include <fmt/format.h>

#include <set>
#include <utility>

#include "braid/core/error.h"

namespace braid::parallel {

Syncs::Syncs(std::vector<std::unique_ptr<Sync>> parts) : parts_(std::move(parts)) {
  std::set<std::string> names;
  for (const auto& part : parts_)
    for (const Param& param : part->params()) {
      if (!names.insert(param.name).second)
        throw InternalError({.what = fmt::format("parameter {} is in two stages", param.name),
                             .why = "two optimizers' worth of updates would reach it",
                             .fix = "give each parameter to the Sync of one stage"});
      params_.push_back(param);
    }
}

Sync& Syncs::at(size_t part) const { return *parts_.at(part); }

const comm::Group& Syncs::owners() const {
  return parts_.empty() ? alone_ : parts_.front()->owners();
}

void Syncs::hold(bool on) {
  for (const auto& part : parts_) part->hold(on);
}

void Syncs::finish() {
  for (const auto& part : parts_) part->finish();
}

void Syncs::publish() {
  for (const auto& part : parts_) part->publish();
}

}  // namespace braid::parallel
