// SPDX-License-Identifier: BSD-3-Clause
#include "checkpoint/names.h"

#include <algorithm>

namespace braid::checkpoint {
namespace {

// The body's prefix by the name that its token embedding has without it.
struct Body {
  const char* embedding;
  const char* prefix;
};
constexpr Body known_bodies[] = {{"model/wte.weight", "transformer."},
                                 {"model/embed_tokens.weight", "model."}};

bool ends_with_any(std::string_view name, std::initializer_list<std::string_view> ends) {
  return std::any_of(ends.begin(), ends.end(), [&](auto end) { return name.ends_with(end); });
}

// Causal masks of GPT-2 ("h.0.attn.bias"; the bias of a layer is "c_attn.bias") and the rotary
// table of Llama.
bool is_buffer(std::string_view name) {
  return ends_with_any(name, {".attn.bias", ".attn.masked_bias", ".rotary_emb.inv_freq"}) &&
         (name.find("h.") != std::string_view::npos ||
          name.find("layers.") != std::string_view::npos);
}

std::string under_body(const std::string& name, const std::string& prefix) {
  if (name == head_weight) return name;
  return std::string(model_prefix) + prefix + name.substr(model_prefix.size());
}

}  // namespace

void use_braid_names(std::vector<Shard>& shards) {
  std::string prefix;
  bool language_model = false;
  for (const Shard& shard : shards)
    for (const StoredPiece& piece : shard.pieces)
      for (const Body& body : known_bodies) {
        if (piece.name == body.embedding) prefix = body.prefix;
        language_model =
            language_model || piece.name.ends_with(std::string(body.embedding).substr(6));
      }
  if (!language_model) return;
  for (Shard& shard : shards) {
    std::erase_if(shard.pieces, [](const StoredPiece& piece) { return is_buffer(piece.name); });
    if (prefix.empty()) continue;
    for (StoredPiece& piece : shard.pieces) piece.name = under_body(piece.name, prefix);
  }
}

std::string braid_name(const std::string& name, const std::map<std::string, Stored>& tensors) {
  if (tensors.contains(name)) return name;
  if (is_buffer(name)) return "";
  for (const Body& body : known_bodies)
    if (const std::string longer = under_body(name, body.prefix); tensors.contains(longer))
      return longer;
  return name;
}

std::string embedding_of(const std::map<std::string, Stored>& tensors) {
  for (const char* name : {"model/transformer.wte.weight", "model/model.embed_tokens.weight"})
    if (tensors.contains(name)) return name;
  return "";
}

}  // namespace braid::checkpoint
