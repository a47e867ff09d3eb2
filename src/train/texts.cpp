// SPDX-License-Identifier: BSD-3-Clause
#include "train/texts.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <sstream>

namespace braid::train {
namespace {

at::Tensor bytes_of_text(const std::string& text, int64_t room) {
  const at::Tensor bytes = at::empty({room}, c10::kByte);
  std::memcpy(bytes.mutable_data_ptr(), text.data(), text.size());
  return bytes;
}

}  // namespace

std::string broadcast_text(const comm::Group& ranks, const std::string& text, int root) {
  const at::Tensor size = at::full({}, static_cast<int64_t>(text.size()), c10::kLong);
  ranks.broadcast(size, root).wait();
  const auto room = size.item<int64_t>();
  const at::Tensor bytes =
      ranks.rank() == root ? bytes_of_text(text, room) : at::empty({room}, c10::kByte);
  if (room > 0) ranks.broadcast(bytes, root).wait();
  return {static_cast<const char*>(bytes.const_data_ptr()), static_cast<size_t>(room)};
}

std::vector<std::string> gather_texts(const comm::Group& ranks, const std::string& text) {
  std::vector<std::string> texts;
  for (int root = 0; root < ranks.size(); ++root)
    texts.push_back(broadcast_text(ranks, text, root));
  return texts;
}

ValidRecord broadcast_record(const comm::Group& ranks, const ValidRecord& record, int root) {
  std::string text = fmt::format("{} {:.17g}", record.samples, record.loss);
  for (const auto& [name, value] : record.metrics) text += fmt::format(" {} {:.17g}", name, value);
  std::istringstream words(broadcast_text(ranks, text, root));
  ValidRecord shared = record;
  shared.metrics.clear();
  const auto number = [&] {
    std::string word;
    words >> word;
    return std::strtod(word.c_str(), nullptr);  // also nan and inf
  };
  words >> shared.samples;
  shared.loss = number();
  for (std::string name; words >> name;) shared.metrics[name] = number();
  return shared;
}

}  // namespace braid::train
