// SPDX-License-Identifier: BSD-3-Clause
// Checkpoints that somebody wrote to do harm, or that lie on disks that cannot be read.
#include <gtest/gtest.h>

#include <ATen/ops/full.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "braid/checkpoint/safetensors.h"
#include "braid/checkpoint/store.h"
#include "checkpoint/saved.h"
#include "checkpoint/sealed.h"
#include "support/expect.h"
#include "support/files.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using test::contains;
using test::error_of;

Snapshot two_tensors(int64_t step) {
  Snapshot s{.step = step, .state = {}, .metrics = {{"loss", 1.0}}, .config = {}};
  s.state.tensors["model/w"] = at::full({4, 2}, static_cast<double>(step));
  s.state.tensors["optimizer/w/exp_avg"] = at::full({4, 2}, static_cast<double>(step));
  return s;
}

struct Hostile : testing::Test {
  void SetUp() override {
    saved(store, two_tensors(1));
    newest = saved(store, two_tensors(2));
  }
  // The newest one is skipped for this reason, and read alone it is refused, too.
  void expect_skipped(const std::string& reason) {
    const auto found = store.newest();
    ASSERT_TRUE(found);
    EXPECT_EQ(found->snapshot.step, 1);
    ASSERT_EQ(found->skipped.size(), 1u) << reason;
    EXPECT_TRUE(contains(found->skipped[0], reason));
    EXPECT_EQ(found->skipped[0].find("json.exception"), std::string::npos);
    EXPECT_TRUE(contains(error_of([&] { load(newest); }), reason));
  }
  test::TempDir dir;
  Store store{dir / "ck", {.keep = 9}};
  fs::path newest;
};

using Edit = void (*)(json& content, json& piece);

TEST_F(Hostile, AManifestThatCannotBeTrueIsSkipped) {
  const struct {
    const char* reason;
    Edit edit;
  } cases[] = {
      {"model/w has 2305843009213693952 elements from 0 on, of 8",
       [](json&, json& piece) { piece[4] = int64_t{1} << 61; }},
      {"model/w has the shape [-1, 64]", [](json&, json& piece) { piece[2] = {-1, 64}; }},
      {"model/w has the shape [1099511627776, 1099511627776]",
       [](json&, json& piece) { piece[2] = {int64_t{1} << 40, int64_t{1} << 40}; }},
      {"have 8 of its 1099511627776 elements",
       [](json&, json& piece) { piece[2] = {int64_t{1} << 40}; }},
      {"model/w is cut in dimension 99 of [4, 2]",
       [](json&, json& piece) { piece.push_back({{99, {{0, 1}}}}); }},
      {"model/w is cut in dimension -1",
       [](json&, json& piece) { piece.push_back({{-1, {{0, 1}}}}); }},
      {"model/w is cut to the rows 0 to 4611686018427387904 of 4",
       [](json&, json& piece) { piece.push_back({{0, {{0, int64_t{1} << 62}}}}); }},
      {"unknown dtype X99", [](json&, json& piece) { piece[1] = "X99"; }},
      {"has 0 hashes, 32 bytes need 1", [](json&, json& piece) { piece[6] = json::array(); }},
      {"a size is 1e+300, a 64-bit integer is needed",
       [](json&, json& piece) { piece[2] = {1e300}; }},
      {"its step is -5", [](json& content, json&) { content["step"] = -5; }},
      {"step is 1e+300", [](json& content, json&) { content["step"] = 1e300; }},
      {"it was written by 0 ranks", [](json& content, json&) { content["world"] = 0; }},
      {"\"../../w\" is not the name of a file",
       [](json& content, json&) { content["shards"][0]["file"] = "../../w"; }},
      {"is not the name of a file in this folder",
       [](json& content, json&) { content["shards"][0]["file"] = std::string("a\0b", 3); }},
      {"type must be string, but is number",
       [](json& content, json&) { content["shards"][0]["file"] = 3; }},
      {"key 'metrics' not found", [](json& content, json&) { content.erase("metrics"); }},
  };
  const json good = manifest_in(newest);
  for (const auto& [reason, edit] : cases) {
    json content = good;
    edit(content, content["shards"][0]["pieces"][0]);
    seal(newest, content);
    expect_skipped(reason);
  }
}

TEST_F(Hostile, AManifestOfManyBracketsIsSkipped) {
  const std::string many(100'000, '['), ends(100'000, ']');
  std::ofstream(newest / "manifest.json")
      << R"({"format":"braid-checkpoint","version":2,"xxh3":"0","a":)" << many << ends << "}";
  expect_skipped("nested 100001 levels deep, at most 64 are read");
}

TEST_F(Hostile, ANamedPipeIsSkippedAtOnce) {
  for (const char* name : {"manifest.json", "model.safetensors"}) {
    const std::string before = test::text_of(newest / name);
    fs::remove(newest / name);
    ASSERT_EQ(mkfifo((newest / name).c_str(), 0600), 0);
    expect_skipped(name);
    fs::remove(newest / name);
    std::ofstream(newest / name) << before;
  }
}

// "None" would start the run from the beginning and cut its log.
TEST_F(Hostile, OnlyAFolderThatIsNotThereIsEmpty) {
  EXPECT_FALSE(Store(dir / "none").newest());
  fs::create_symlink(dir / "loop", dir / "loop");
  const std::string text = error_of([&] { Store(dir / "loop").newest(); });
  EXPECT_TRUE(contains(text, "cannot list " + (dir / "loop").string()));
  EXPECT_TRUE(contains(text, "a symbolic link there leads back to itself"));
}

TEST_F(Hostile, NoPermissionIsNotNone) {
  fs::permissions(dir.path(), fs::perms::all);
  fs::permissions(dir / "ck", fs::perms::none);
  const pid_t child = fork();
  if (child == 0) {
    if (getuid() == 0 && setuid(65534) != 0) _exit(2);
    const std::string text = error_of([&] { store.newest(); });
    _exit(contains(text, "Permission denied") && contains(text, "get permission to read") ? 0 : 1);
  }
  int status = 0;
  waitpid(child, &status, 0);
  fs::permissions(dir / "ck", fs::perms::all);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

TEST_F(Hostile, AnIndexNamesFilesOfItsFolderAlone) {
  for (const std::string file : {"../x.safetensors", "/etc/passwd", "a/b", ".."}) {
    std::ofstream(dir / "model.safetensors.index.json")
        << json{{"weight_map", {{"w", file}}}}.dump();
    EXPECT_TRUE(contains(error_of([&] { Reader::open(dir.path() / ""); }),
                         "does not name a file in the same folder"))
        << file;
  }
}

TEST_F(Hostile, ANameOccursOnceInASafetensorsFile) {
  const std::string entry = R"("w":{"dtype":"F32","shape":[1],"data_offsets":[0,4]})";
  const std::string header = "{" + entry + "," + entry + "}";
  const uint64_t length = header.size();
  std::ofstream(dir / "x.safetensors")
      << std::string(reinterpret_cast<const char*>(&length), 8) << header << "1234";
  EXPECT_TRUE(contains(error_of([&] { read_safetensors(dir / "x.safetensors"); }),
                       "its header is not valid: \"w\" occurs twice"));
}

}  // namespace
}  // namespace braid::checkpoint
