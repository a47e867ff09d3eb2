// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "braid/core/error.h"
#include "check.h"

namespace braid::nn {

std::vector<int64_t> divisors(int64_t number) {
  std::vector<int64_t> found;
  for (int64_t d = 1; d <= number; ++d)
    if (number % d == 0) found.push_back(d);
  return found;
}

void check_divides(const std::string& part_name, int64_t part, const std::string& whole_name,
                   int64_t whole, const std::string& why) {
  if (part > 0 && whole % part == 0) return;
  throw ConfigError(
      {.what = fmt::format("{} = {} does not divide {} = {}", part_name, part, whole_name, whole),
       .why = why,
       .fix = fmt::format("set {} to one of {}", part_name, fmt::join(divisors(whole), ", "))});
}

void check_image(const std::vector<int64_t>& image) {
  if (image.size() == 2 && image[0] > 0 && image[1] > 0) return;
  throw ConfigError({.what = fmt::format("model.image = [{}]", fmt::join(image, ", ")),
                     .why = "an image has rows and columns: two positive numbers",
                     .fix = "set model.image=[360,720]"});
}

}  // namespace braid::nn
