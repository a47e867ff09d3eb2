// SPDX-License-Identifier: BSD-3-Clause
#include "braid/checkpoint/convert.h"

#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <fmt/format.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "braid/checkpoint/safetensors.h"
#include "checkpoint/layouts.h"
#include "support/command.h"
#include "support/expect.h"
#include "support/peak.h"
#include "support/ranks.h"

namespace braid::checkpoint {
namespace {

namespace fs = std::filesystem;
using test::contains;
using test::error_of;

// A checkpoint of three ranks in `dir`.
fs::path sharded(const test::TempDir& dir) {
  test::on_ranks(3, [&](comm::Group world) {
    Store store(dir / "run/checkpoints", {}, world);
    store.save({.step = 12,
                .state = state_of(Layout::flat, world.rank(), 3, 1),
                .metrics = {{"loss", 0.5}},
                .config = "seed: 1\n"});
    store.wait();
  });
  return dir / "run/checkpoints/step-00000012";
}

void expect_weights(const Tensors& tensors) {
  EXPECT_EQ(tensors.size(), model_shapes().size());
  for (const Shape& shape : model_shapes())
    EXPECT_TRUE(
        tensors.at(shape.name).equal(numbers(std::string("model/") + shape.name, shape.sizes, 1)))
        << shape.name;
}

void python(const std::string& script, const std::vector<std::string>& words) {
  const fs::path program = fs::path(BRAID_SOURCE_DIR) / ".deps/venv/bin/python";
  if (!fs::exists(program)) GTEST_SKIP() << "no " << program << " (make test installs it)";
  std::vector<std::string> command = {program.string(), "-c", script};
  command.insert(command.end(), words.begin(), words.end());
  const test::Outcome done = test::run_command(command);
  EXPECT_EQ(done.code, 0) << done.err;
}

TEST(Convert, ShardsBecomeOneFileThatPythonReads) {
  const test::TempDir dir;
  sharded(dir);
  const Converted done =
      convert(Reader::open(dir / "run"), dir / "w.safetensors", {.format = Format::safetensors});
  EXPECT_EQ(done.tensors, 5);
  EXPECT_EQ(done.bytes, 65 * 4);
  expect_weights(read_safetensors(dir / "w.safetensors").tensors);
  python(
      "import sys\n"
      "from safetensors import safe_open\n"
      "from safetensors.numpy import load_file\n"
      "t = load_file(sys.argv[1])\n"
      "assert t['a.weight'].shape == (7, 5) and t['b.weight'].shape == (3, 4, 2), t\n"
      "assert safe_open(sys.argv[1], 'np').metadata() == {'format': 'pt'}\n",
      {(dir / "w.safetensors").string()});
}

TEST(Convert, HuggingFaceShardsThereAndBack) {
  const test::TempDir dir;
  const Reader from(sharded(dir));
  const Converted done =
      convert(from, dir / "hf/", {.format = Format::hugging_face, .max_shard = {170}});
  EXPECT_EQ(done.files, 2);  // 20 + 140 bytes, and 96 + 4
  python(
      "import json, sys\n"
      "from safetensors.numpy import load_file\n"
      "index = json.load(open(sys.argv[1] + '/model.safetensors.index.json'))\n"
      "assert index['metadata']['total_size'] == 260\n"
      "assert set(index['weight_map'].values()) == {f'model-0000{i}-of-00002.safetensors' for i in "
      "(1, 2)}\n"
      "for name, file in index['weight_map'].items():\n"
      "    assert name in load_file(sys.argv[1] + '/' + file), name\n",
      {(dir / "hf").string()});
  const Reader back = Reader::open(dir / "hf");
  EXPECT_FALSE(back.is_checkpoint());
  convert(back, dir / "again", {.ranks = 3});
  expect_weights(load(dir / "again").state.part("model").tensors);
  convert(back, dir / "one", {.format = Format::hugging_face});  // fits into one file
  expect_weights(read_safetensors(dir / "one/model.safetensors").tensors);
}

TEST(Convert, ACheckpointKeepsEverything) {
  const test::TempDir dir;
  const fs::path made = sharded(dir);
  for (const int64_t ranks : {1, 2, 5}) {
    const fs::path to = dir / fmt::format("ranks{}", ranks);
    const Converted done =
        convert(Reader(made), to, {.ranks = ranks, .texts = {{"config.yaml", "seed: 1\n"}}});
    EXPECT_EQ(done.files, ranks == 1 ? 2 : ranks);
    const Snapshot s = load(to);
    expect_equal(s.state, state_of(Layout::whole, 0, 1, 1), "converted");
    EXPECT_EQ(s.step, 12);
    EXPECT_EQ(s.config, "seed: 1\n");
    EXPECT_EQ(s.state.integer("loader/seen"), 123);
    EXPECT_EQ(Reader(to).world(), ranks);
  }
}

TEST(Convert, CastsWeightsAlone) {
  const test::TempDir dir;
  convert(Reader(sharded(dir)), dir / "bf16", {.dtype = c10::kBFloat16});
  const Reader reader(dir / "bf16");
  EXPECT_EQ(reader.tensors().at("model/a.weight").dtype, c10::kBFloat16);
  EXPECT_EQ(reader.tensors().at("optimizer/a.weight/exp_avg").dtype, c10::kFloat);
  EXPECT_TRUE(reader.whole("model/a.weight")
                  .equal(numbers("model/a.weight", {7, 5}, 1).to(c10::kBFloat16)));
}

// GPT-2 as the hub has it: no prefix, masks among the weights, and a head that is the embedding.
TEST(Convert, KnowsGpt2Files) {
  const test::TempDir dir;
  const at::Tensor wte = at::arange(12, at::TensorOptions(c10::kFloat)).view({4, 3});
  write_safetensors(dir / "gpt2.safetensors", {{"wte.weight", wte},
                                               {"h.0.attn.bias", at::ones({1, 1, 2, 2})},
                                               {"h.0.attn.masked_bias", at::ones({})},
                                               {"h.0.attn.c_attn.bias", at::ones({9})},
                                               {"lm_head.weight", wte}});
  const Reader from = Reader::open(dir / "gpt2.safetensors");
  EXPECT_EQ(convert(from, dir / "tied", {}).left_out, std::vector<std::string>{"lm_head.weight"});
  const State tied = load(dir / "tied").state;
  EXPECT_EQ(tied.tensors.size(), 2u);
  EXPECT_TRUE(tied.tensor("model/transformer.wte.weight").equal(wte));
  EXPECT_TRUE(tied.has("model/transformer.h.0.attn.c_attn.bias"));
  EXPECT_TRUE(convert(from, dir / "untied", {.tied = false}).left_out.empty());
  EXPECT_TRUE(load(dir / "untied").state.tensor("model/lm_head.weight").equal(wte));
}

TEST(Convert, KnowsLlamaFiles) {
  const test::TempDir dir;
  fs::create_directory(dir / "llama");
  write_safetensors(dir / "llama/model-1.safetensors",
                    {{"model.embed_tokens.weight", at::ones({4, 3})}});
  write_safetensors(dir / "llama/model-2.safetensors",
                    {{"model.layers.0.self_attn.rotary_emb.inv_freq", at::ones({2})},
                     {"model.norm.weight", at::ones({3})},
                     {"lm_head.weight", at::zeros({4, 3})}});
  const auto index = [&](const std::string& norm) {
    std::ofstream(dir / "llama/model.safetensors.index.json")
        << R"({"weight_map": {"model.embed_tokens.weight": "model-1.safetensors", "lm_head.weight": )"
        << R"("model-2.safetensors", "model.layers.0.self_attn.rotary_emb.inv_freq": )"
        << R"("model-2.safetensors", "model.norm.weight": ")" << norm << R"("}})";
  };
  index("model-2.safetensors");
  EXPECT_TRUE(convert(Reader::open(dir / "llama"), dir / "ck", {}).left_out.empty());
  EXPECT_EQ(load(dir / "ck").state.tensors.size(), 3u);
  EXPECT_TRUE(load(dir / "ck").state.has("model/model.norm.weight"));
  index("model-1.safetensors");
  EXPECT_TRUE(contains(error_of([&] { Reader::open(dir / "llama"); }),
                       "model-1.safetensors should hold model.norm.weight"));
  index("model-3.safetensors");
  EXPECT_TRUE(
      contains(error_of([&] { Reader::open(dir / "llama"); }), "model-3.safetensors is missing"));
  std::ofstream(dir / "llama/model.safetensors.index.json") << "<html>";
  EXPECT_TRUE(
      contains(error_of([&] { Reader::open(dir / "llama"); }), "not JSON with a weight_map"));
}

TEST(Convert, NothingIsOverwrittenUnasked) {
  const test::TempDir dir;
  const Reader from(sharded(dir));
  const auto file = [&](bool force) {
    convert(from, dir / "w.safetensors", {.format = Format::safetensors, .force = force});
  };
  std::ofstream(dir / "w.safetensors") << "mine";
  EXPECT_TRUE(contains(error_of([&] { file(false); }), "add --force"));
  EXPECT_EQ(test::text_of(dir / "w.safetensors"), "mine");
  file(true);
  expect_weights(read_safetensors(dir / "w.safetensors").tensors);
  convert(from, dir / "ck", {});
  EXPECT_TRUE(contains(error_of([&] { convert(from, dir / "ck", {}); }), "exists already"));
  convert(from, dir / "ck", {.ranks = 2, .force = true});
  EXPECT_EQ(Reader(dir / "ck").world(), 2);
  fs::create_directory(dir / "home");
  std::ofstream(dir / "home/thesis.tex") << "years of work";
  EXPECT_TRUE(contains(error_of([&] { convert(from, dir / "home", {.force = true}); }),
                       "it is not a folder of weights"));
  EXPECT_TRUE(fs::exists(dir / "home/thesis.tex"));
}

// 160 MiB in four tensors: one of them at a time is in memory.
TEST(Convert, NeedsRoomForOneTensor) {
  const test::TempDir dir;
  {
    State state;
    for (const char* name : {"model/a", "model/b", "model/c", "model/d"})
      state.tensors[name] = at::ones({10 << 20});
    Store(dir / "ck", {.background = false}).save({.step = 1, .state = state});
  }
  const Reader from = Reader::open(dir / "ck");
  const test::PeakGrowth peak;
  convert(from, dir / "one.safetensors", {.format = Format::safetensors});
  convert(from, dir / "hf", {.format = Format::hugging_face, .max_shard = {50'000'000}});
  EXPECT_LT(peak.kilobytes(), (40 + 8) << 10) << "kB";
}

TEST(Convert, SaysWhatCannotBeRead) {
  const test::TempDir dir;
  EXPECT_TRUE(contains(error_of([&] { Reader::open(dir / "no"); }), "it does not exist"));
  EXPECT_TRUE(
      contains(error_of([&] { Reader::open(dir.path()); }), "it has neither manifest.json"));
  fs::create_directory(dir / "old");
  std::ofstream(dir / "old/pytorch_model.bin") << "PK";
  EXPECT_TRUE(contains(error_of([&] { Reader::open(dir / "old"); }), "a pickle of Python"));
  std::ofstream(dir / "x.safetensors") << "PK";
  EXPECT_TRUE(contains(error_of([&] { Reader::open(dir / "x.safetensors"); }),
                       "is not a whole safetensors file"));
  const fs::path made = sharded(dir);
  fs::resize_file(made / "shard-00001-of-00003.safetensors", 100);
  const Reader from(made);
  EXPECT_TRUE(contains(error_of([&] { convert(from, dir / "ck", {}); }),
                       "shard-00001-of-00003.safetensors is truncated"));
  EXPECT_FALSE(fs::exists(dir / "ck"));
}

}  // namespace
}  // namespace braid::checkpoint
