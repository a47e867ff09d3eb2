// SPDX-License-Identifier: BSD-3-Clause
// Opens a page in a real browser, as wide as a desk and as a phone, and asks it questions. In
// frames, for a window of Chromium is never narrower than 500 pixels.
#pragma once
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "report/samples.h"
#include "support/files.h"

namespace braid::test {

inline bool has_browser() { return std::system("command -v chromium > /dev/null") == 0; }

// What the function `ask` of (document, window) gives at 1280 and at 390 pixels. Each answer also
// has "error", the first of the page's script, and "wider", by how much the page is wider than the
// screen.
inline nlohmann::json ask_page(std::string page, const std::string& ask) {
  TempDir dir;
  page.insert(page.find("<body>") + 6,
              "<script>window.problem = ''; addEventListener('error', (event) => { "
              "window.problem = window.problem || event.message; });</script>");
  std::ofstream(dir / "page.html") << page;
  std::ofstream(dir / "frames.html")
      << "<body><iframe src=page.html style='width:1280px;height:900px;border:0'></iframe>"
         "<iframe src=page.html style='width:390px;height:844px;border:0'></iframe><pre></pre>"
         "<script>addEventListener('load', () => { const ask = "
      << ask
      << "; const answers = [...document.querySelectorAll('iframe')].map((frame) => {"
         "  const inner = frame.contentDocument, root = inner.documentElement;"
         "  const answer = ask(inner, frame.contentWindow);"
         "  return {...answer, error: frame.contentWindow.problem,"
         "          wider: root.scrollWidth - root.clientWidth}; });"
         "document.querySelector('pre').textContent = 'begin' + JSON.stringify(answers).replaceAll("
         "'\\u00a0', ' ') + 'end'; "
         "});</script>";
  const std::string command =
      "chromium --headless --no-sandbox --disable-gpu --allow-file-access-from-files "
      "--virtual-time-budget=2000 --user-data-dir=" +
      (dir / "browser").string() + " --dump-dom file://" + (dir / "frames.html").string() + " > " +
      (dir / "drawn").string() + " 2> /dev/null";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  const std::string drawn = text_of((dir / "drawn").string());
  const size_t begin = drawn.find("<pre>begin") + 10;
  return nlohmann::json::parse(drawn.substr(begin, drawn.find("end</pre>", begin) - begin), nullptr,
                               /*allow_exceptions=*/false);
}

}  // namespace braid::test
