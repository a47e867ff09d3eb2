// SPDX-License-Identifier: BSD-3-Clause
#include "braid/comm/texts.h"

#include <ATen/ops/empty.h>

#include <cstring>
#include <numeric>

namespace braid::comm {

std::vector<std::string> exchange_texts(const Group& world, const std::string& mine,
                                        c10::Device device) {
  if (world.size() == 1) return {mine};
  const auto ranks = static_cast<size_t>(world.size());
  const at::Tensor length = at::empty({1}, at::TensorOptions(c10::kLong));
  *length.mutable_data_ptr<int64_t>() = static_cast<int64_t>(mine.size()) + 1;  // never none
  const at::Tensor there = at::empty({world.size()}, length.options().device(device));
  world.all_gather(there, length.to(device)).wait();
  const at::Tensor lengths = there.cpu();
  const auto* counts = lengths.const_data_ptr<int64_t>();
  const std::vector<int64_t> rows(counts, counts + ranks);
  const at::Tensor text =
      at::empty({rows[static_cast<size_t>(world.rank())]}, at::TensorOptions(c10::kByte));
  std::memcpy(text.mutable_data_ptr(), mine.c_str(), mine.size() + 1);
  const at::Tensor gathered = at::empty({std::accumulate(rows.begin(), rows.end(), int64_t{0})},
                                        text.options().device(device));
  world.all_gather(gathered, text.to(device), rows).wait();
  const at::Tensor all = gathered.cpu();
  std::vector<std::string> texts;
  const char* at = static_cast<const char*>(all.const_data_ptr());
  for (const int64_t row : rows) {
    texts.emplace_back(at, static_cast<size_t>(row - 1));
    at += row;
  }
  return texts;
}

}  // namespace braid::comm
