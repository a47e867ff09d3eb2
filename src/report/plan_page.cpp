// SPDX-License-Identifier: BSD-3-Clause
#include "braid/report/plan_page.h"

#include "report/page.h"
#include "report/page_text.h"

namespace braid::report {

std::string plan_page(std::string_view title, std::string_view json) {
  return filled(page_plan_html, {{"title", html_escaped(title)},
                                 {"style", std::string(page_css)},
                                 {"shared_script", std::string(page_shared_js)},
                                 {"script", std::string(page_plan_js)},
                                 {"data", script_escaped(PageJson::parse(json))}});
}

}  // namespace braid::report
