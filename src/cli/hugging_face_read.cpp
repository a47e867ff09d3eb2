// SPDX-License-Identifier: BSD-3-Clause
// From a config.json of transformers to braid's options of the same model.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "braid/core/options.h"
#include "cli/hugging_face.h"
#include "cli/hugging_face_keys.h"

namespace braid::cli {
namespace {

using nlohmann::json;

const std::vector<Required> required_of_all = {
    {"quantization_config", {}, "braid reads floating-point weights, not quantised ones"},
    {"sliding_window", {}, "in braid every token attends to all tokens before it"},
    {"auto_map", {}, "the model is Python code of its own, which braid cannot run"},
    {"pruned_heads", {json::object()}, "in braid all blocks have the same number of heads"},
    {"is_encoder_decoder", {false}, "braid's language models are decoders"},
    {"add_cross_attention", {false}, "braid's language models have no cross-attention"}};

const std::vector<Required> required_of_gpt = {
    {"activation_function",
     {"gelu_new", "gelu_pytorch_tanh"},
     "braid's GPT has the tanh form of GELU: gelu_new or gelu_pytorch_tanh"},
    {"scale_attn_weights",
     {true},
     "braid divides attention scores by the square root of the head width"},
    {"scale_attn_by_inverse_layer_idx",
     {false},
     "braid scales attention scores alike in all layers"},
    {"reorder_and_upcast_attn",
     {false},
     "braid computes attention in the order and precision of the other layers"}};

const std::vector<Required> required_of_llama = {
    {"hidden_act", {"silu", "swish"}, "the MLPs of braid's Llama are SwiGLU: hidden_act silu"},
    {"attention_bias", {false}, "the linear layers of braid's Llama have no biases"},
    {"mlp_bias", {false}, "the linear layers of braid's Llama have no biases"},
    {"attention_dropout", {0}, "braid's Llama has no dropout"},
    {"partial_rotary_factor", {1}, "braid's rotary positions turn whole heads"}};

// Names, tokens of a tokenizer, how transformers runs or initialises the model.
const std::vector<const char*> without_effect = {"_attn_implementation_autoset",
                                                 "_name_or_path",
                                                 "bos_token_id",
                                                 "chunk_size_feed_forward",
                                                 "cross_attention_hidden_size",
                                                 "decoder_start_token_id",
                                                 "dtype",
                                                 "eos_token_id",
                                                 "finetuning_task",
                                                 "id2label",
                                                 "initializer_range",
                                                 "is_decoder",
                                                 "label2id",
                                                 "n_ctx",
                                                 "output_attentions",
                                                 "output_hidden_states",
                                                 "output_past",
                                                 "pad_token_id",
                                                 "prefix",
                                                 "pretraining_tp",
                                                 "problem_type",
                                                 "return_dict",
                                                 "sep_token_id",
                                                 "summary_activation",
                                                 "summary_first_dropout",
                                                 "summary_proj_to_labels",
                                                 "summary_type",
                                                 "summary_use_proj",
                                                 "task_specific_params",
                                                 "tie_encoder_decoder",
                                                 "tokenizer_class",
                                                 "torch_dtype",
                                                 "torchscript",
                                                 "transformers_version",
                                                 "use_bfloat16",
                                                 "use_cache"};

// transformers has three rates of dropout, braid one.
void read_dropout(ConfigJson& from, nn::GptOptions& o) {
  double embedding = 0, attention = 0;
  from.take("dropout", embedding, {"embd_pdrop"}, 0.1);
  from.take("dropout", attention, {"attn_pdrop"}, 0.1);
  from.take("dropout", o.dropout, {"resid_pdrop"}, 0.1);
  if (o.dropout == embedding && o.dropout == attention) return;
  throw ConfigError(
      {.what = fmt::format("{}: resid_pdrop = {}, embd_pdrop = {}, attn_pdrop = {}", from.file(),
                           o.dropout, embedding, attention),
       .why = "braid's GPT has one rate of dropout (model.dropout)",
       .fix = "give all three the same value there; they have an effect in training only"});
}

void read_gpt(ConfigJson& from, nn::ModelOptions& model) {
  model.name = nn::ModelName::gpt;
  nn::GptOptions& o = model.gpt;
  from.take("vocabulary", o.vocabulary, {"vocab_size"}, 50257);
  from.take("sequence", o.sequence, {"n_positions", "max_position_embeddings"}, 1024);
  from.take("layers", o.layers, {"n_layer", "num_hidden_layers"}, 12);
  from.take("heads", o.heads, {"n_head", "num_attention_heads"}, 12);
  from.take("width", o.width, {"n_embd", "hidden_size"}, 768);
  from.take("eps", o.eps, {"layer_norm_epsilon"}, 1e-5);
  from.take("tied", o.tied, {"tie_word_embeddings"}, true);
  int64_t hidden = 0;
  from.take("hidden", hidden, {"n_inner"}, 4 * o.width);
  if (hidden != 4 * o.width)
    from.refuse(fmt::format("n_inner = {}", hidden),
                fmt::format("the MLPs of braid's GPT are 4 x n_embd = {} wide", 4 * o.width));
  read_dropout(from, o);
  for (const Required& rule : required_of_gpt) from.require(rule);
}

// All frequencies are divided by factor: the Llama-3 rule for waves that are all longer than
// rope_original / rope_low.
void make_linear(nn::LlamaOptions& o) {
  o.rope_original = o.sequence;
  o.rope_low = static_cast<double>(o.sequence);
  o.rope_high = 2 * o.rope_low;
}

void read_llama3(ConfigJson& rope, int64_t beside, nn::LlamaOptions& o) {
  rope.take("rope_low", o.rope_low, {"low_freq_factor"}, 1);
  rope.take("rope_high", o.rope_high, {"high_freq_factor"}, 4);
  rope.take("rope_original", o.rope_original, {"original_max_position_embeddings"},
            beside > 0 ? beside : o.sequence);
  if (beside > 0 && beside != o.rope_original)
    rope.refuse(fmt::format("original_max_position_embeddings = {} beside another one of {}",
                            o.rope_original, beside),
                "versions of transformers disagree on which of the two counts");
  if (o.rope_low <= 0 || o.rope_high <= o.rope_low || o.rope_original < 1)
    rope.refuse(
        fmt::format("low_freq_factor = {} with high_freq_factor = {}", o.rope_low, o.rope_high),
        "the scaling goes from low_freq_factor, above 0, up to high_freq_factor");
}

std::string rope_type_of(ConfigJson& rope) {
  const json& type = rope.find({"rope_type", "type"});
  if (type.is_null()) return "default";
  return type.is_string() ? type.get<std::string>() : type.dump();
}

// transformers 5 keeps all of it in rope_parameters; before, rope_theta stood beside rope_scaling.
void read_rope(ConfigJson& from, nn::LlamaOptions& o, std::map<std::string, std::string>& origins) {
  double theta = 0;
  int64_t beside = 0;
  from.take("rope_theta", theta, {"rope_theta"}, 10000);
  from.take("rope_original", beside, {"original_max_position_embeddings"}, 0);
  const json& scaling = from.find({"rope_scaling"});
  const json& parameters = from.find({"rope_parameters"});
  const bool old = scaling.is_object() && !scaling.empty();
  ConfigJson rope(from,
                  old                      ? scaling
                  : parameters.is_object() ? parameters
                                           : json::object(),
                  old ? "rope_scaling." : "rope_parameters.");
  rope.take("rope_theta", o.rope_theta, {"rope_theta"}, theta);
  if (rope.find({"rope_theta"}).is_null()) origins["rope_theta"] = from.origins().at("rope_theta");
  rope.require({"partial_rotary_factor", {1}, "braid's rotary positions turn whole heads"});
  o.rope_factor = 1;
  const std::string type = rope_type_of(rope);
  if (type == "default")
    origins["rope_factor"] = "no rope_scaling";
  else
    rope.take("rope_factor", o.rope_factor, {"factor"}, 1);
  if (type == "linear")
    make_linear(o);
  else if (type == "llama3")
    read_llama3(rope, beside, o);
  else if (type != "default")
    rope.refuse(fmt::format("rope_type = \"{}\"", type),
                "braid's Llama has rotary positions as they are (default), linear or llama3");
  if (o.rope_factor < 1 || o.rope_theta <= 0)
    rope.refuse(fmt::format("factor = {} with rope_theta = {}", o.rope_factor, o.rope_theta),
                "factor is at least 1 and rope_theta above 0");
  rope.ignore({"factor", "original_max_position_embeddings"});  // of llama3 alone
  if (const std::vector<std::string> more = rope.unknown(); !more.empty())
    rope.refuse(fmt::format("{}", fmt::join(more, ", ")), "braid's Llama has no such parameter");
  for (const auto& [key, text] : rope.origins()) origins.emplace(key, text);
}

void read_llama(ConfigJson& from, nn::ModelOptions& model,
                std::map<std::string, std::string>& origins) {
  model.name = nn::ModelName::llama;
  nn::LlamaOptions& o = model.llama;
  from.take("vocabulary", o.vocabulary, {"vocab_size"}, 32000);
  from.take("sequence", o.sequence, {"max_position_embeddings"}, 2048);
  from.take("layers", o.layers, {"num_hidden_layers"}, 32);
  from.take("heads", o.heads, {"num_attention_heads"}, 32);
  from.take("kv_heads", o.kv_heads, {"num_key_value_heads"}, o.heads);
  from.take("width", o.width, {"hidden_size"}, 4096);
  from.take("hidden", o.hidden, {"intermediate_size"}, 11008);
  from.take("eps", o.eps, {"rms_norm_eps"}, 1e-6);
  from.take("tied", o.tied, {"tie_word_embeddings"}, false);
  int64_t head = 0;
  from.take("head", head, {"head_dim"}, o.width / std::max<int64_t>(1, o.heads));
  if (head * o.heads != o.width)
    from.refuse(fmt::format("head_dim = {}", head),
                fmt::format("a head of braid's Llama is hidden_size / num_attention_heads = {} / "
                            "{} wide",
                            o.width, o.heads));
  read_rope(from, o, origins);
  for (const Required& rule : required_of_llama) from.require(rule);
}

struct Architecture {
  const char* type;
  std::vector<std::string> classes;
  void (*read)(ConfigJson&, nn::ModelOptions&, std::map<std::string, std::string>&);
};

const std::vector<Architecture>& architectures() {
  static const std::vector<Architecture> all = {
      {"gpt2",
       {"GPT2LMHeadModel", "GPT2Model"},
       [](ConfigJson& from, nn::ModelOptions& model, auto&) { read_gpt(from, model); }},
      {"llama", {"LlamaForCausalLM", "LlamaModel"}, read_llama}};
  return all;
}

// By model_type; by the class where that is absent, as in the oldest files.
const Architecture& architecture_of(ConfigJson& from) {
  const json& type = from.find({"model_type"});
  const json& classes = from.find({"architectures"});
  const std::string name = type.is_string() ? type.get<std::string>() : "";
  std::string first;
  if (classes.is_array() && !classes.empty() && classes[0].is_string())
    first = classes[0].get<std::string>();
  for (const Architecture& known : architectures()) {
    const bool listed = std::ranges::find(known.classes, first) != known.classes.end();
    if (name.empty() ? listed : name == known.type && (listed || first.empty())) return known;
  }
  std::vector<std::string> all;
  for (const Architecture& known : architectures()) all.push_back(known.classes.front());
  throw ConfigError(
      {.what = fmt::format("{}: model_type {}, architectures {}", from.file(),
                           type.is_null() ? "absent" : type.dump(),
                           classes.is_null() ? "absent" : classes.dump()),
       .why = fmt::format("of transformers' models braid has {}", fmt::join(all, " and ")),
       .fix =
           "convert one of these; for weights of another model of braid, name their .safetensors "
           "file instead of the folder, and the config by --config"});
}

std::string value_of(const std::vector<OptionRow>& rows, const std::string& key) {
  for (const OptionRow& row : rows)
    if (row.path == key) return row.value;
  return "";
}

std::vector<OptionRow> rows_of(nn::ModelOptions model) {
  ListFields fields;
  describe(fields, model);
  return fields.rows;
}

// Settings that may differ: they have no effect on the output for the same weights.
bool may_differ(const std::string& key, const nn::ModelOptions& given) {
  if (key == "dropout" || key == "kernels") return true;
  if (given.name != nn::ModelName::llama) return false;
  const bool scaling = key == "rope_low" || key == "rope_high" || key == "rope_original";
  return scaling && given.llama.rope_factor == 1;
}

// Rotary positions have no weights: a config may stop at a shorter sequence.
bool is_shorter(const std::string& key, const HuggingFaceModel& theirs,
                const nn::ModelOptions& given) {
  return key == "sequence" && given.name == nn::ModelName::llama &&
         given.llama.sequence <= theirs.options.llama.sequence;
}

}  // namespace

HuggingFaceModel read_hugging_face(const std::filesystem::path& file) {
  ConfigJson from(file);
  HuggingFaceModel model{.options = {}, .file = file.string(), .origins = {}, .unknown = {}};
  const Architecture& known = architecture_of(from);
  for (const Required& rule : required_of_all) from.require(rule);
  known.read(from, model.options, model.origins);
  from.ignore(without_effect);
  for (const auto& [key, text] : from.origins()) model.origins.emplace(key, text);
  model.origins["name"] = fmt::format("model_type = \"{}\"", known.type);
  model.unknown = from.unknown();
  return model;
}

void check_same_model(const HuggingFaceModel& theirs, const nn::ModelOptions& given,
                      const std::string& spec) {
  const std::vector<OptionRow> wanted = rows_of(theirs.options);
  for (const OptionRow& row : rows_of(given)) {
    const std::string there = value_of(wanted, row.path);
    if (row.value == there || may_differ(row.path, given) || is_shorter(row.path, theirs, given))
      continue;
    const auto origin = theirs.origins.find(row.path);
    throw ConfigError(
        {.what = fmt::format(
             "model.{} = {} in {}, but {} has {}", row.path, row.value, spec, theirs.file,
             origin == theirs.origins.end() ? "nothing of the kind" : origin->second),
         .why = "with another value the weights give other numbers",
         .fix = there.empty()
                    ? fmt::format("take model.{} out of {}", row.path, spec)
                    : fmt::format("write model.{}: {}, or leave out --config", row.path, there)});
  }
}

}  // namespace braid::cli
