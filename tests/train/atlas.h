// SPDX-License-Identifier: BSD-3-Clause
// A source of made-up fields with names, units and the latitudes of a region.
#pragma once
#include <memory>
#include <utility>

#include "braid/data/source.h"

namespace braid::train {

// Made-up fields that know what and where they are.
class Atlas final : public data::Source {
 public:
  Atlas(std::shared_ptr<const data::Source> fields, data::FieldInfo info,
        data::Scaling scaling = {})
      : fields_(std::move(fields)), info_(std::move(info)), scaling_(std::move(scaling)) {}
  int64_t size() const override { return fields_->size(); }
  const data::SampleSpec& spec() const override { return fields_->spec(); }
  void read(data::Access access, const data::Sample& out) const override {
    fields_->read(access, out);
  }
  data::Scaling scaling() const override { return scaling_; }
  data::FieldInfo fields() const override { return info_; }
  std::string describe(int64_t index) const override { return fields_->describe(index); }

 private:
  std::shared_ptr<const data::Source> fields_;
  data::FieldInfo info_;
  data::Scaling scaling_;
};

inline data::FieldInfo weather_info(int rows = 8) {
  data::FieldInfo info{.names = {"air_temperature", "wind", "rain"}, .units = {"K", "m s-1", ""}};
  for (int row = 0; row < rows; ++row)
    info.latitudes.push_back(20 + 40.0 * row / rows);  // south first
  return info;
}

}  // namespace braid::train
