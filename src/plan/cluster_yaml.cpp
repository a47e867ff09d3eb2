// SPDX-License-Identifier: BSD-3-Clause
// A cluster as a file that a person edits: what is not known is left out, curves a line a point.
#include <fmt/format.h>

#include <type_traits>

#include "braid/plan/cluster.h"

namespace braid::plan {
namespace {

// Strings that are not plain words are quoted: a colon or a hash would end them.
std::string cluster_value(const std::string& value) {
  std::string quoted = "\"";
  for (const char c : value)
    quoted += (c == '"' || c == '\\') ? fmt::format("\\{}", c) : std::string(1, c);
  return quoted + '"';
}
std::string cluster_value(bool value) { return value ? "true" : "false"; }
std::string cluster_value(int64_t value) { return fmt::format("{}", value); }
std::string cluster_value(double value) { return exact_text(value); }
std::string cluster_value(Bytes value) { return exact_text(value); }
std::string cluster_value(Seconds value) { return exact_text(value); }

bool is_unsaid(const std::string& value) { return value.empty(); }
bool is_unsaid(bool) { return false; }
bool is_unsaid(int64_t value) { return value == 0; }
bool is_unsaid(double value) { return value == 0; }
bool is_unsaid(Bytes value) { return value.count == 0; }
bool is_unsaid(Seconds value) { return value.count == 0; }

class ClusterWriter final : public Fields {
 public:
  std::string text;

 protected:
  void visit(std::string_view name, Slot slot, std::string_view, const Rule&) override {
    std::visit([&](auto* value) { write(name, *value); }, slot);
  }
  void enter(std::string_view name, std::string_view) override {
    begun_.push_back(text.size());
    text += fmt::format("{:{}}{}:\n", "", indent(), name);
    inside_.push_back(text.size());
    depth_++;
  }
  void leave() override {
    depth_--;
    if (text.size() == inside_.back()) text.resize(begun_.back());  // nothing was said
    begun_.pop_back();
    inside_.pop_back();
  }

 private:
  size_t indent() const { return 2 * static_cast<size_t>(depth_); }

  template <class T>
  void write(std::string_view name, const T& value) {
    if (!is_unsaid(value))
      text += fmt::format("{:{}}{}: {}\n", "", indent(), name, cluster_value(value));
  }
  template <class T>
  void write(std::string_view name, const std::optional<T>& value) {
    if (value) write(name, *value);
  }
  template <class T>
  void write(std::string_view name, const std::vector<T>& values) {
    if (values.empty()) return;
    text += fmt::format("{:{}}{}:\n", "", indent(), name);
    for (const T& value : values) {
      if constexpr (std::is_same_v<T, std::string>)
        text += fmt::format("{:{}}- {}\n", "", indent() + 2, value);
      else
        text += fmt::format("{:{}}- {}\n", "", indent() + 2, cluster_value(value));
    }
  }

  int depth_ = 0;
  std::vector<size_t> begun_, inside_;
};

}  // namespace

std::string to_yaml(const Cluster& cluster) {
  Cluster written = cluster;
  ClusterWriter writer;
  describe(writer, written);
  return writer.text;
}

}  // namespace braid::plan
