// SPDX-License-Identifier: BSD-3-Clause
// Puts texts into the pages of src/report/page/ so that they cannot break out of their places.
#pragma once
#include <map>
#include <string>
#include <string_view>

#include "report/page_json.h"

namespace braid::report {

std::string html_escaped(std::string_view text);
// Inside <script> a text of a run must not be able to end the element.
std::string script_escaped(const PageJson& json);
// The page with its {{marks}} replaced; in one pass, so that a text put in is not searched again.
std::string filled(std::string_view page, const std::map<std::string_view, std::string>& parts);

}  // namespace braid::report
