// SPDX-License-Identifier: BSD-3-Clause
// The page of a plan: memory bars, trade-off, timeline and the table with the reasons, without
// anything from outside. What it shows comes as JSON (plan::page_html makes it).
//
//   write_atomic("plan.html", report::plan_page("braid: plan of gpt", json));
#pragma once
#include <string>
#include <string_view>

namespace braid::report {

std::string plan_page(std::string_view title, std::string_view json);

}  // namespace braid::report
