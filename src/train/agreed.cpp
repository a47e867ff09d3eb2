// SPDX-License-Identifier: BSD-3-Clause
#include "train/agreed.h"

#include <fmt/format.h>

#include <cstdlib>
#include <sstream>
#include <string>

#include "braid/comm/texts.h"

namespace braid::train {

ValidRecord broadcast_record(const comm::Group& ranks, const ValidRecord& record, int root) {
  std::string text = fmt::format("{} {:.17g}", record.samples, record.loss);
  for (const auto& [name, value] : record.metrics) text += fmt::format(" {} {:.17g}", name, value);
  std::istringstream words(comm::exchange_texts(ranks, text).at(static_cast<size_t>(root)));
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
