// SPDX-License-Identifier: BSD-3-Clause
// Files that `braid plan` writes.
#include <filesystem>

#include "braid/core/fs.h"
#include "braid/plan/present.h"
#include "cli/plan.h"

namespace braid::cli {
namespace {

namespace fs = std::filesystem;

// In a folder that may not be there.
void write_plan_file(const fs::path& file, const std::string& text,
                     std::vector<std::string>& written) {
  if (file.has_parent_path()) make_dirs(file.parent_path());
  write_atomic(file, text);
  written.push_back(file.string());
}

}  // namespace

std::vector<std::string> write_plan_files(const PlanArguments& arguments,
                                          const plan::Request& request, const plan::Found& found) {
  std::vector<std::string> written;
  if (!arguments.html.empty())
    write_plan_file(arguments.html, plan::page_html(request, found), written);
  if (found.plans.empty()) return written;
  const plan::Plan& best = found.plans.front();
  if (!arguments.trace.empty())
    write_plan_file(arguments.trace, plan::to_trace(best.time), written);
  if (!best.fits) return written;
  if (!arguments.apply.empty())
    write_plan_file(arguments.apply, plan::config_text(request, best), written);
  if (arguments.leave) {
    const fs::path dir = arguments.leave->empty() ? train::run_dir(best.options) : *arguments.leave;
    write_plan_file(dir / "plan.json", plan::run_json(request, best), written);
  }
  return written;
}

}  // namespace braid::cli
