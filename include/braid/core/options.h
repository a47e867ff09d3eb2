// SPDX-License-Identifier: BSD-3-Clause
// One description of an option struct feeds parsing, defaults, help, docs and the resolved config
// of a run.
//
//   struct SgdOptions { double lr = 0.1; bool nesterov = false; };
//   void describe(Fields& f, SgdOptions& o) {
//     f.field("lr", o.lr, "learning rate", {.above = 0});
//     f.field("nesterov", o.nesterov, "look ahead by one momentum step");
//   }
//   // An unknown key is an error with file, line and the nearest name:
//   auto sgd = read_options<SgdOptions>(config.at("optimizer"));
#pragma once
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "braid/core/config.h"
#include "braid/core/units.h"

namespace braid {

struct Rule {
  double at_least = -std::numeric_limits<double>::infinity();
  double above = -std::numeric_limits<double>::infinity();
  double at_most = std::numeric_limits<double>::infinity();
  std::vector<std::string> one_of = {};  // of a text
  std::string_view none =
      "none";                  // the word (beside null) that leaves an optional empty, e.g. auto
  std::string_view zero = {};  // the word that an optional integer of 0 is, e.g. auto
};

class Fields {
 public:
  using Slot = std::variant<bool*, int64_t*, double*, std::string*, Bytes*, Seconds*,
                            std::optional<int64_t>*, std::optional<double>*,
                            std::optional<std::string>*, std::optional<Seconds>*,
                            std::vector<int64_t>*, std::vector<double>*, std::vector<std::string>*>;
  virtual ~Fields() = default;

  template <class T>
  void field(std::string_view name, T& value, std::string_view help, const Rule& rule = {}) {
    visit(name, Slot(&value), help, rule);
  }

  // A text option with a fixed set of words, kept as an enum whose enumerators stand in the order
  // of `words`.
  template <class E>
  void choice(std::string_view name, E& value, std::vector<std::string> words,
              std::string_view help) {
    std::string word = words.at(static_cast<size_t>(value));
    visit(name, Slot(&word), help, {.one_of = words});
    for (size_t i = 0; i < words.size(); ++i)
      if (words[i] == word) value = static_cast<E>(i);
  }

  template <class T>
  void section(std::string_view name, T& options, std::string_view help) {
    enter(name, help);
    describe(*this, options);
    leave();
  }

 protected:
  virtual void visit(std::string_view name, Slot slot, std::string_view help, const Rule& rule) = 0;
  virtual void enter(std::string_view name, std::string_view help) = 0;
  virtual void leave() = 0;
};

// Fills described fields from a config; leave() and finish() complain of keys that nobody
// described.
class ReadFields final : public Fields {
 public:
  explicit ReadFields(const Config& config);
  ~ReadFields() override;
  void finish();

 protected:
  void visit(std::string_view name, Slot slot, std::string_view help, const Rule& rule) override;
  void enter(std::string_view name, std::string_view help) override;
  void leave() override;

 private:
  struct Level;
  std::vector<Level> levels_;
};

// Writes the values of described fields into a config: the resolved config of a run.
class WriteFields final : public Fields {
 public:
  Config config;

 protected:
  void visit(std::string_view name, Slot slot, std::string_view help, const Rule& rule) override;
  void enter(std::string_view name, std::string_view help) override;
  void leave() override;

 private:
  std::vector<std::string> path_;
};

struct OptionRow {
  std::string path;   // train.steps
  std::string type;   // number, integer, text, yes/no, bytes, time, list of ...
  std::string value;  // the default
  std::string help;
  std::vector<std::string> one_of;
};

// Collects the rows of help and docs.
class ListFields final : public Fields {
 public:
  std::vector<OptionRow> rows;

 protected:
  void visit(std::string_view name, Slot slot, std::string_view help, const Rule& rule) override;
  void enter(std::string_view name, std::string_view help) override;
  void leave() override;

 private:
  std::vector<std::string> path_;
};

template <class T>
T read_options(const Config& config, T options = {}) {
  ReadFields fields(config);
  describe(fields, options);
  fields.finish();
  return options;
}

}  // namespace braid
