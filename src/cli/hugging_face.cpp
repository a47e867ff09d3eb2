// SPDX-License-Identifier: BSD-3-Clause
#include "cli/hugging_face.h"

#include <nlohmann/json.hpp>
#include <numbers>

#include "braid/core/fs.h"

namespace braid::cli {
namespace {

using nlohmann::json;

// transformers' default ends a text at token 50256, which smaller vocabularies do not have.
constexpr int64_t gpt2_vocabulary = 50257;

json gpt_json(const nn::GptOptions& o) {
  json content = {{"architectures", {"GPT2LMHeadModel"}},
                  {"model_type", "gpt2"},
                  {"vocab_size", o.vocabulary},
                  {"n_positions", o.sequence},
                  {"n_embd", o.width},
                  {"n_layer", o.layers},
                  {"n_head", o.heads},
                  {"activation_function", "gelu_new"},
                  {"resid_pdrop", o.dropout},
                  {"embd_pdrop", o.dropout},
                  {"attn_pdrop", o.dropout},
                  {"layer_norm_epsilon", o.eps},
                  {"tie_word_embeddings", o.tied}};
  if (o.vocabulary < gpt2_vocabulary) content["bos_token_id"] = content["eos_token_id"] = nullptr;
  return content;
}

// All waves are longer than original / low, so the Llama-3 rule divides all frequencies by factor.
bool is_linear(const nn::LlamaOptions& o) {
  return o.rope_low * 2 * std::numbers::pi >= static_cast<double>(o.rope_original);
}

json rope_json(const nn::LlamaOptions& o) {
  if (is_linear(o)) return {{"rope_type", "linear"}, {"factor", o.rope_factor}};
  return {{"rope_type", "llama3"},
          {"factor", o.rope_factor},
          {"low_freq_factor", o.rope_low},
          {"high_freq_factor", o.rope_high},
          {"original_max_position_embeddings", o.rope_original}};
}

json llama_json(const nn::LlamaOptions& o) {
  json content = {{"architectures", {"LlamaForCausalLM"}},
                  {"model_type", "llama"},
                  {"vocab_size", o.vocabulary},
                  {"max_position_embeddings", o.sequence},
                  {"hidden_size", o.width},
                  {"intermediate_size", o.hidden},
                  {"num_hidden_layers", o.layers},
                  {"num_attention_heads", o.heads},
                  {"num_key_value_heads", o.kv_heads},
                  {"hidden_act", "silu"},
                  {"rms_norm_eps", o.eps},
                  {"rope_theta", o.rope_theta},
                  {"bos_token_id", nullptr},
                  {"eos_token_id", nullptr},
                  {"tie_word_embeddings", o.tied}};
  if (o.rope_factor != 1) content["rope_scaling"] = rope_json(o);
  return content;
}

std::string torch_dtype_of(c10::ScalarType type) {
  switch (type) {
    case c10::kDouble:
      return "float64";
    case c10::kBFloat16:
      return "bfloat16";
    case c10::kHalf:
      return "float16";
    default:
      return "float32";
  }
}

}  // namespace

std::string hugging_face_config(const nn::ModelOptions& model, c10::ScalarType weights) {
  json content;
  if (model.name == nn::ModelName::gpt && model.gpt.moe.experts == 0)
    content = gpt_json(model.gpt);
  else if (model.name == nn::ModelName::llama && model.llama.moe.experts == 0)
    content = llama_json(model.llama);
  else
    return "";
  content["torch_dtype"] = torch_dtype_of(weights);  // transformers 5 reads this name of dtype, too
  return content.dump(2) + "\n";
}

std::string hugging_face_config(const std::filesystem::path& file,
                                std::optional<c10::ScalarType> weights) {
  std::string text = read_text(file);
  json content = json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!weights || !content.is_object()) return text;
  for (const char* key : {"torch_dtype", "dtype"})
    if (content.contains(key)) content[key] = torch_dtype_of(*weights);
  return content.dump(2) + "\n";
}

bool is_tied(const nn::ModelOptions& model) {
  return (model.name == nn::ModelName::gpt && model.gpt.tied) ||
         (model.name == nn::ModelName::llama && model.llama.tied);
}

}  // namespace braid::cli
