// SPDX-License-Identifier: BSD-3-Clause
// Checks of sizes that more than one model makes, with the words of the config.
//
//   check_divides("model.heads", 5, "model.width", 384, "a head holds a whole number of features");
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace braid::nn {

std::vector<int64_t> divisors(int64_t number);
// Throws ConfigError unless `part` divides `whole`; the fix lists the divisors near `part`.
void check_divides(const std::string& part_name, int64_t part, const std::string& whole_name,
                   int64_t whole, const std::string& why);
void check_image(const std::vector<int64_t>& image);  // two positive numbers

}  // namespace braid::nn
