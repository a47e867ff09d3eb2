// SPDX-License-Identifier: BSD-3-Clause
// The parts of report.html that do not depend on a run: src/report/page/page.{html,css,js}.
#pragma once
#include <string_view>

namespace braid::report {

extern const std::string_view page_html;  // with {{style}}, {{script}}, {{title}}, {{data}}
extern const std::string_view page_css;
extern const std::string_view page_js;

}  // namespace braid::report
