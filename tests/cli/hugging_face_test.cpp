// SPDX-License-Identifier: BSD-3-Clause
// Folders that transformers saved (tests/golden/hugging_face.py): converted, they give its logits.
#include "cli/hugging_face.h"

#include "braid/checkpoint/safetensors.h"
#include "braid/checkpoint/store.h"
#include "braid/train/session.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

const fs::path folders = fs::path(BRAID_SOURCE_DIR) / "tests/golden/hugging_face";

at::Tensor logits_of(const fs::path& run, const at::Tensor& tokens) {
  const train::RunOptions options =
      train::load_run((run / "config.yaml").string(), {"train.device=cpu"});
  const auto model = train::build_model(options);
  train::copy_weights(*model, checkpoint::load(run).state.part("model"));
  return model->forward(tokens, {.training = false}).detach();
}

// ||a - b|| / ||b||
double difference(const at::Tensor& a, const at::Tensor& b) {
  return a.to(c10::kDouble).sub(b).norm().item<double>() / b.norm().item<double>();
}

struct HuggingFace : Cli, testing::WithParamInterface<std::string> {};

TEST_P(HuggingFace, ConvertedModelsGiveTheLogitsOfTransformers) {
  const fs::path from = folders / GetParam();
  const Outcome done = run_here({"convert", from.string(), at("run")});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(contains(done.err, "the model comes from " + (from / "config.json").string()));
  const auto expected = checkpoint::read_safetensors(from / "expected.safetensors").tensors;
  const at::Tensor& wanted = expected.at("logits");
  const bool wide = wanted.scalar_type() == c10::kDouble;
  EXPECT_LT(difference(logits_of(dir / "run", expected.at("input")), wanted), wide ? 1e-10 : 1e-6);
}

INSTANTIATE_TEST_SUITE_P(, HuggingFace,
                         testing::Values("gpt2", "gpt2_untied", "gpt2_old", "gpt2_v5",
                                         "gpt2_body_v5", "llama2", "llama3", "llama31",
                                         "llama32_tied", "llama_linear", "llama_fp32", "llama3_v5",
                                         "llama32_tied_v5"),
                         [](const auto& one) { return one.param; });

struct HuggingFaceConfig : Cli {
  // What reading says of the config of `folder` with some keys changed.
  std::string refusal(const std::string& folder, const nlohmann::json& changes) const {
    auto content = nlohmann::json::parse(text_of(folders / folder / "config.json"));
    content.update(changes, /*merge_objects=*/true);
    std::ofstream(dir / "config.json") << content.dump();
    return error_of([&] { cli::read_hugging_face(dir / "config.json"); });
  }
  std::string of_gpt(const nlohmann::json& changes) const { return refusal("gpt2", changes); }
  std::string of_llama(const nlohmann::json& changes) const { return refusal("llama31", changes); }

  // A copy of a folder, with changes to its config.json; null: without config.json.
  void copy(const std::string& folder, const nlohmann::json& changes) const {
    fs::create_directory(dir / "hf");
    for (const auto& file : fs::directory_iterator(folders / folder))
      fs::copy(file.path(), dir / "hf" / file.path().filename());
    if (changes.is_null()) {
      fs::remove(dir / "hf/config.json");
      return;
    }
    auto content = nlohmann::json::parse(text_of(dir / "hf/config.json"));
    content.update(changes);
    std::ofstream(dir / "hf/config.json") << content.dump();
  }
};

TEST_F(HuggingFaceConfig, RefusesWhatGptCannotRepresent) {
  EXPECT_TRUE(contains(of_gpt({{"activation_function", "gelu"}}),
                       "activation_function = \"gelu\" is not supported"));
  EXPECT_TRUE(contains(of_gpt({{"activation_function", "relu"}}), "the tanh form of GELU"));
  EXPECT_TRUE(contains(of_gpt({{"scale_attn_by_inverse_layer_idx", true}}), "alike in all layers"));
  EXPECT_TRUE(
      contains(of_gpt({{"reorder_and_upcast_attn", true}}), "reorder_and_upcast_attn = true"));
  EXPECT_TRUE(contains(of_gpt({{"scale_attn_weights", false}}), "square root of the head width"));
  EXPECT_TRUE(contains(of_gpt({{"n_inner", 50}}), "n_inner = 50 is not supported"));
  EXPECT_TRUE(contains(of_gpt({{"add_cross_attention", true}}), "no cross-attention"));
  EXPECT_TRUE(contains(of_gpt({{"attn_pdrop", 0.2}}), "attn_pdrop = 0.2"));
  EXPECT_TRUE(contains(of_gpt({{"n_head", "three"}}), "n_head = \"three\""));
  EXPECT_TRUE(contains(of_gpt({{"quantization_config", {{"bits", 4}}}}), "not quantised ones"));
}

TEST_F(HuggingFaceConfig, RefusesWhatLlamaCannotRepresent) {
  EXPECT_TRUE(contains(of_llama({{"hidden_act", "gelu"}}), "hidden_act silu"));
  EXPECT_TRUE(contains(of_llama({{"attention_bias", true}}), "attention_bias = true"));
  EXPECT_TRUE(contains(of_llama({{"mlp_bias", true}}), "have no biases"));
  EXPECT_TRUE(contains(of_llama({{"sliding_window", 4096}}), "sliding_window = 4096"));
  EXPECT_TRUE(contains(of_llama({{"head_dim", 16}}), "head_dim = 16 is not supported"));
  EXPECT_TRUE(contains(of_llama({{"attention_dropout", 0.1}}), "has no dropout"));
  EXPECT_TRUE(contains(of_llama({{"partial_rotary_factor", 0.5}}), "turn whole heads"));
  EXPECT_TRUE(contains(of_llama({{"rope_scaling", {{"rope_type", "yarn"}}}}),
                       "rope_scaling.rope_type = \"yarn\" is not supported"));
  EXPECT_TRUE(
      contains(of_llama({{"rope_scaling", {{"beta_fast", 32}}}}), "rope_scaling.beta_fast"));
  EXPECT_TRUE(contains(of_llama({{"rope_scaling", {{"high_freq_factor", 0.5}}}}),
                       "low_freq_factor = 1 with high_freq_factor = 0.5"));
  EXPECT_TRUE(contains(of_llama({{"original_max_position_embeddings", 64}}), "versions of"));
}

TEST_F(HuggingFaceConfig, RefusesOtherModels) {
  EXPECT_TRUE(contains(of_llama({{"model_type", "mistral"}}), "model_type \"mistral\""));
  const nlohmann::json other = {{"architectures", {"LlamaForSequenceClassification"}}};
  EXPECT_TRUE(contains(of_llama(other), "GPT2LMHeadModel and LlamaForCausalLM"));
  std::ofstream(dir / "broken.json") << "{\"model_type\":";
  EXPECT_TRUE(contains(error_of([&] { cli::read_hugging_face(dir / "broken.json"); }),
                       "is not a JSON object"));
}

TEST_F(HuggingFaceConfig, AConfigThatDisagreesIsRefused) {
  const std::string spec = at("own.yaml");
  const auto convert = [&](const std::string& model) {
    std::ofstream(spec) << "model: {name: gpt, vocabulary: 23, sequence: 16, layers: 2, width: 12, "
                        << model << "}\ntrain: {steps: 1, loss: cross_entropy}\n";
    return braid_run(
        {"convert", (folders / "gpt2").string(), at("run"), "--force", "--config", spec});
  };
  expect_complaint(convert("heads: 4"), Exit::config,
                   {"model.heads = 4 in " + spec, "config.json has n_head = 3"});
  expect_complaint(convert("heads: 3, eps: 1e-6"), Exit::config,
                   {"model.eps = 1e-06 in", "layer_norm_epsilon = 1e-05"});
  const Outcome agrees = convert("heads: 3, dropout: 0.3");
  EXPECT_EQ(agrees.code, 0) << agrees.err;
  EXPECT_EQ(train::load_run(at("run/config.yaml")).model.gpt.dropout, 0.3);
}

TEST_F(HuggingFaceConfig, WithoutAnyConfigNothingIsWritten) {
  copy("gpt2", nullptr);
  expect_complaint(run_here({"convert", at("hf"), at("run")}), Exit::config,
                   {"nothing says which model the weights of", "--config CONFIG"});
  EXPECT_FALSE(fs::exists(dir / "run"));
  // The weights alone need none.
  EXPECT_EQ(run_here({"convert", at("hf"), at("w.safetensors")}).code, 0);
  expect_complaint(run_here({"convert", at("hf"), at("run"), "--config", config("gpt")}),
                   Exit::storage, {"has shape"});
}

TEST_F(HuggingFaceConfig, TiedOrNotMustFitTheWeights) {
  copy("gpt2_untied", {{"tie_word_embeddings", true}});
  expect_complaint(run_here({"convert", at("hf"), at("run")}), Exit::config,
                   {"lm_head.weight differs from it"});
  fs::remove_all(dir / "hf");
  copy("gpt2", {{"tie_word_embeddings", false}});
  expect_complaint(run_here({"convert", at("hf"), at("run")}), Exit::config,
                   {"there is no lm_head.weight"});
}

// There and back: what braid exports it reads again, and predict and eval take it at once.
TEST_F(HuggingFaceConfig, ExportsWhatItReads) {
  for (const std::string folder : {"gpt2_untied", "llama31", "llama_linear"}) {
    const auto expected =
        checkpoint::read_safetensors(folders / folder / "expected.safetensors").tensors;
    ASSERT_EQ(run_here({"convert", (folders / folder).string(), at(folder)}).code, 0);
    ASSERT_EQ(run_here({"convert", at(folder), at(folder + "-hf"), "--format", "hf"}).code, 0);
    const Outcome back = run_here({"convert", at(folder + "-hf"), at(folder + "-2")});
    ASSERT_EQ(back.code, 0) << back.err;
    EXPECT_EQ(text_of(dir / folder / "model.safetensors"),
              text_of(dir / (folder + "-2") / "model.safetensors"));
    EXPECT_LT(
        difference(logits_of(dir / (folder + "-2"), expected.at("input")), expected.at("logits")),
        1e-10);
  }
  const Outcome text = run_here({"predict", at("llama31"), "--prompt", "1 2 3", "--tokens", "4"});
  EXPECT_EQ(text.code, 0) << text.err;
}

}  // namespace
}  // namespace braid::test
