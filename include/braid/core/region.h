// SPDX-License-Identifier: BSD-3-Clause
// A named stretch of time of this thread, for the profiler. A trace shows it as an annotation.
//
//   const Region here(regions::forward);   // until the end of the scope
//
// Without a profiler it costs about 30 ns: leave them in.
#pragma once
#include <memory>
#include <string_view>

namespace braid {

// Those of every step; summaries of a profile know them by name.
namespace regions {
inline constexpr std::string_view forward = "## forward ##";
inline constexpr std::string_view backward = "## backward ##";
inline constexpr std::string_view optimizer = "## optimizer ##";
inline constexpr std::string_view data = "## data ##";
inline constexpr std::string_view communication = "## communication ##";  // stands still for it
}  // namespace regions

class Region {
 public:
  explicit Region(std::string_view name);
  ~Region();
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  struct State;
  std::unique_ptr<State> state_;  // null: nobody profiles
};

}  // namespace braid
