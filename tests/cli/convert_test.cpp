// SPDX-License-Identifier: BSD-3-Clause
#include "braid/checkpoint/reader.h"
#include "braid/checkpoint/safetensors.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

nlohmann::json loss_of(const std::string& checkpoint) {
  const Outcome done = braid_run({"eval", checkpoint, "--json"});
  EXPECT_EQ(done.code, 0) << done.err;
  return nlohmann::json::parse(done.out).at("loss");
}

// A run as four ranks would have saved it: eval sees no difference.
TEST_F(Cli, ConvertToShardsAndBack) {
  ASSERT_EQ(train("gpt").code, 0);
  const Outcome done = braid_run({"convert", at("gpt"), at("four"), "--ranks", "4", "--json"});
  ASSERT_EQ(done.code, 0) << done.err;
  const auto report = nlohmann::json::parse(done.out);
  EXPECT_EQ(report.at("files"), 4);
  EXPECT_TRUE(contains(report.at("from").get<std::string>(), "gpt/checkpoints/step-00000002"));
  EXPECT_TRUE(std::filesystem::exists(dir / "four/shard-00003-of-00004.safetensors"));
  EXPECT_EQ(loss_of(at("four")), loss_of(at("gpt")));
  EXPECT_EQ(braid_run({"convert", at("four"), at("one")}).code, 0);
  EXPECT_EQ(test::text_of(dir / "one/model.safetensors"),
            test::text_of(dir / "gpt/checkpoints/step-00000002/model.safetensors"));
}

TEST_F(Cli, ConvertToHuggingFaceAndBack) {
  ASSERT_EQ(train("gpt").code, 0);
  const Outcome made =
      braid_run({"convert", at("gpt"), at("hf"), "--format", "hf", "--max-shard", "5kB"});
  ASSERT_EQ(made.code, 0) << made.err;
  EXPECT_TRUE(contains(made.out, "files to " + at("hf")));
  const auto theirs = nlohmann::json::parse(text_of(dir / "hf/config.json"));
  EXPECT_EQ(theirs.at("n_embd"), 16);
  EXPECT_EQ(theirs.at("tie_word_embeddings"), true);
  const Outcome back = braid_run({"convert", at("hf"), at("ck"), "--config", config("gpt")});
  ASSERT_EQ(back.code, 0) << back.err;
  EXPECT_EQ(loss_of(at("ck")), loss_of(at("gpt")));
}

TEST_F(Cli, ConvertChoosesByTheNameAndRefusesToOverwrite) {
  ASSERT_EQ(train("gpt").code, 0);
  const Words words = {"convert", at("gpt"), at("w.safetensors"), "--dtype", "bf16"};
  ASSERT_EQ(braid_run(words).code, 0);
  for (const auto& [name, tensor] : checkpoint::read_safetensors(dir / "w.safetensors").tensors)
    EXPECT_EQ(tensor.scalar_type(), c10::kBFloat16) << name;
  const Outcome again = braid_run(words);
  EXPECT_EQ(again.code, static_cast<int>(Exit::storage));
  EXPECT_TRUE(contains(again.err, "exists already"));
  EXPECT_TRUE(contains(again.err, "--force"));
  EXPECT_EQ(braid_run({"convert", at("gpt"), at("x"), "--max-shard", "big"}).code,
            static_cast<int>(Exit::config));
  EXPECT_EQ(braid_run({"convert", at("none"), at("x")}).code, static_cast<int>(Exit::storage));
}

}  // namespace
}  // namespace braid::test
