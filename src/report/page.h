// SPDX-License-Identifier: BSD-3-Clause
// The parts of report.html, the memory page and the page of a plan that do not depend on a run:
// src/report/page/.
#pragma once
#include <string_view>

namespace braid::report {

// Pages with {{marks}} where style, scripts, title and data go.
extern const std::string_view page_html;
extern const std::string_view page_memory_html;
extern const std::string_view page_plan_html;
extern const std::string_view page_css;
extern const std::string_view page_shared_js;    // helpers of all scripts
extern const std::string_view page_timeline_js;  // draws memory by category over time
extern const std::string_view page_memory_js;    // the memory page
extern const std::string_view page_plan_js;      // the page of a plan
extern const std::string_view page_js;           // report.html
extern const std::string_view page_ranks_js;     // its section "Ranks"
extern const std::string_view page_profile_js;   // its section "Profile"

}  // namespace braid::report
