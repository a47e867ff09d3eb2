// SPDX-License-Identifier: BSD-3-Clause
// Names that scripts rely on: flags of the command line, fields of what --json prints. A new name
// is added to the golden file; one that is there never goes.
#include <gtest/gtest.h>

#include <set>
#include <sstream>

#include "cli/app.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

std::string golden(const std::string& name) {
  return text_of(std::string(BRAID_SOURCE_DIR) + "/tests/golden/" + name);
}

std::string lines_of(const std::set<std::string>& lines) {
  std::string text;
  for (const std::string& line : lines) text += line + "\n";
  return text;
}

TEST(Frozen, Flags) {
  cli::Action action;
  const auto app = cli::make_app(action);
  const std::vector<std::string> flags = cli::flag_list(*app);
  EXPECT_EQ(lines_of({flags.begin(), flags.end()}), golden("cli_flags.txt"));
}

// "layers[].name" for each object of a list.
void list_fields(const nlohmann::json& value, const std::string& prefix,
                 std::set<std::string>& names) {
  if (value.is_array()) {
    for (const nlohmann::json& item : value) list_fields(item, prefix + "[]", names);
  } else if (value.is_object()) {
    for (const auto& [key, item] : value.items()) {
      const std::string name = prefix + (prefix.back() == ' ' ? "" : ".") + key;
      names.insert(name);
      if (key != "metrics") list_fields(item, name, names);
    }
  }
}

struct FrozenJson : Cli {
  void add(const std::string& command, Words words, int code = 0) {
    words.push_back("--json");
    const Outcome done = braid_run(words);
    EXPECT_EQ(done.code, code) << command << done.err;
    EXPECT_EQ(std::count(done.out.begin(), done.out.end(), '\n'), 1) << command;
    list_fields(json_of(done), command + " ", names);
  }
  std::set<std::string> names;
};

TEST_F(FrozenJson, Fields) {
  make_weather();
  std::ofstream(dir / "weather/train/1991.h5") << "no HDF5";
  add("data stats", {"data", "stats", at("weather/valid")});
  add("data check", {"data", "check", at("weather/train")}, static_cast<int>(Exit::data));
  add("train", {"train", config("mlp")});
  add("eval", {"eval", at("mlp")});
  add("report", {"report", at("mlp")});
  add("convert", {"convert", at("mlp"), at("mlp.safetensors")});
  add("inspect", {"inspect", config("vit"), "--memory"});
  add("plan", {"plan", config("gpt"), "--cluster", "h200", "--gpus", "1"});
  add("bench kernels",
      {"bench", "kernels", "--device", "cpu", "--small", "--dtype", "fp32", "--only", "gemm"});
  add("bench comm", {"bench", "comm", "--ranks", "2", "--device", "cpu", "--largest", "4 KiB",
                     "--repetitions", "1", "--dir", at("comm")});
  add("schedule", {"schedule"});
  add("profile", {"profile", config("mlp"), "--steps", "1", "--warm-up", "0"});
  add("help config", {"help", "config"});
  names.insert("doctor ready");
  const Outcome doctor = braid_run({"doctor", "--json"});
  list_fields(json_of(doctor), "doctor ", names);
  EXPECT_EQ(lines_of(names), golden("json_fields.txt"));
}

}  // namespace
}  // namespace braid::test
