// SPDX-License-Identifier: BSD-3-Clause
// Names of weights from elsewhere. braid's GPT and Llama have the names of transformers'
// GPT2LMHeadModel and LlamaForCausalLM; files of the body alone lack its prefix, and old files hold
// masks and tables that braid computes itself.
#pragma once
#include <map>
#include <string>
#include <vector>

#include "braid/checkpoint/reader.h"
#include "checkpoint/manifest.h"

namespace braid::checkpoint {

// Renames the pieces, and leaves out what is no weight.
void use_braid_names(std::vector<Shard>& shards);
// The name that `name` has got among `tensors`; "" if it was left out.
std::string braid_name(const std::string& name, const std::map<std::string, Stored>& tensors);

// "model/transformer.wte.weight" or "model/model.embed_tokens.weight" if it is there, else "".
std::string embedding_of(const std::map<std::string, Stored>& tensors);
inline constexpr const char* head_weight = "model/lm_head.weight";

}  // namespace braid::checkpoint
