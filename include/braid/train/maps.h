// SPDX-License-Identifier: BSD-3-Clause
// Maps of one channel side by side: north on top, with the channel's name and unit in each title.
//
//   PictureRecord picture = train::maps_of(info, 2, {{"target", target}, {"prediction", output}});
#pragma once
#include <string>
#include <utility>
#include <vector>

#include <ATen/core/Tensor.h>

#include "braid/core/record.h"
#include "braid/data/source.h"

namespace braid::train {

// The channel of that name or number; empty: the first. `key` is what the word was given for.
// Throws ConfigError.
int64_t channel_called(const std::string& key, const std::string& word,
                       const std::vector<std::string>& names);

// "t2m (K)"; without a known unit "t2m".
std::string channel_label(const data::FieldInfo& info, int64_t channel);

// Fields [channels, rows, columns] by what they show. The latitudes of `info` say where north is.
PictureRecord maps_of(const data::FieldInfo& info, int64_t channel,
                      const std::vector<std::pair<std::string, at::Tensor>>& fields);

// x * std + mean for each channel: the inverse of what a source with this scaling does.
at::Tensor physical(const at::Tensor& fields, const data::Scaling& scaling);

}  // namespace braid::train
