// SPDX-License-Identifier: BSD-3-Clause
#include "report/page_text.h"

#include <algorithm>

namespace braid::report {

std::string html_escaped(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    if (c == '&')
      escaped += "&amp;";
    else if (c == '<')
      escaped += "&lt;";
    else if (c == '>')
      escaped += "&gt;";
    else if (c == '"')
      escaped += "&quot;";
    else
      escaped += c;
  }
  return escaped;
}

std::string script_escaped(const PageJson& json) {
  std::string escaped;
  for (const char c : json.dump(-1, ' ', false, PageJson::error_handler_t::replace)) {
    if (c == '<')
      escaped += "\\u003c";
    else if (c == '>')
      escaped += "\\u003e";
    else if (c == '&')
      escaped += "\\u0026";
    else
      escaped += c;
  }
  return escaped;
}

std::string filled(std::string_view page, const std::map<std::string_view, std::string>& parts) {
  std::string text;
  for (size_t at = 0; at < page.size();) {
    const size_t open = page.find("{{", at);
    const size_t close = page.find("}}", std::min(open, page.size()));
    if (close == std::string_view::npos) return text += page.substr(at);
    text += page.substr(at, open - at);
    text += parts.at(page.substr(open + 2, close - open - 2));
    at = close + 2;
  }
  return text;
}

}  // namespace braid::report
