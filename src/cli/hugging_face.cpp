// SPDX-License-Identifier: BSD-3-Clause
#include "cli/hugging_face.h"

#include <nlohmann/json.hpp>

namespace braid::cli {
namespace {

using nlohmann::json;

json gpt_json(const nn::GptOptions& o) {
  return {{"architectures", {"GPT2LMHeadModel"}},
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
                  {"tie_word_embeddings", o.tied}};
  if (o.rope_factor != 1)
    content["rope_scaling"] = {{"rope_type", "llama3"},
                               {"factor", o.rope_factor},
                               {"low_freq_factor", o.rope_low},
                               {"high_freq_factor", o.rope_high},
                               {"original_max_position_embeddings", o.rope_original}};
  return content;
}

}  // namespace

std::string hugging_face_config(const nn::ModelOptions& model) {
  if (model.name == nn::ModelName::gpt) return gpt_json(model.gpt).dump(2) + "\n";
  if (model.name == nn::ModelName::llama) return llama_json(model.llama).dump(2) + "\n";
  return "";
}

bool is_tied(const nn::ModelOptions& model) {
  return (model.name == nn::ModelName::gpt && model.gpt.tied) ||
         (model.name == nn::ModelName::llama && model.llama.tied);
}

}  // namespace braid::cli
