// SPDX-License-Identifier: BSD-3-Clause
// The parts of report.html that do not depend on a run: src/report/page/.
#pragma once
#include <string_view>

namespace braid::report {

extern const std::string_view
    page_html;  // with {{style}}, {{ranks_script}}, {{script}}, {{title}}, {{data}}
extern const std::string_view page_css;
extern const std::string_view page_js;
extern const std::string_view page_ranks_js;  // the section "Ranks", called by page_js

}  // namespace braid::report
