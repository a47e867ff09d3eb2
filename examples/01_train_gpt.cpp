// SPDX-License-Identifier: BSD-3-Clause
// A whole training program: made-up tokens, a small GPT, AdamW. Writes runs/first/. Alone, or as one
// run of several ranks:
//   torchrun --no-python --nproc-per-node 2 build/bin/01_train_gpt
#include <braid/braid.h>
using namespace braid;

int main() {
  data::make_tokens("train.bin", {.tokens = 20'000, .vocabulary = 256});
  auto corpus = data::open_source(
      {.kind = data::Kind::tokens, .train = "train.bin", .sequence = 64}, data::Split::train, 1);
  auto model = nn::make_gpt(
      {.vocabulary = 256, .sequence = 64, .layers = 2, .heads = 4, .width = 64}, {.seed = 1});
  train::RunOptions run;
  run.run.name = "first";
  run.train = {.steps = 60, .global_batch = 8, .loss = nn::Loss::cross_entropy};
  run.optimizer.rule = {.name = optim::Algorithm::adamw, .lr = 3e-3, .weight_decay = 0.1};
  return train::fit(*model, {.train = corpus}, run).reason == "steps" ? 0 : 1;
}
