// SPDX-License-Identifier: BSD-3-Clause
#include "cli/braid.h"

namespace braid::test {
namespace {

Outcome doctor_with(const std::vector<std::string>& variables, const Words& flags) {
  Words words = {"/usr/bin/env", "-u", "CUDA_LAUNCH_BLOCKING"};
  words.insert(words.end(), variables.begin(), variables.end());
  for (const std::string& word : braid_words({"doctor"})) words.push_back(word);
  words.insert(words.end(), flags.begin(), flags.end());
  return run_command(words);
}

TEST(Doctor, ExplainsTheVariablesThatAreSet) {
  const Outcome done = doctor_with({"NCCL_DEBUG=INFO", "TORCH_DISTRIBUTED_DEBUG=DETAIL"}, {});
  EXPECT_TRUE(contains(done.out, "set  NCCL_DEBUG=INFO\n                what NCCL logs"));
  EXPECT_TRUE(contains(done.out, "set  TORCH_DISTRIBUTED_DEBUG=DETAIL\n"));
  EXPECT_FALSE(contains(done.out, "CUDA_LAUNCH_BLOCKING")) << "not set, so not there";
}

TEST(Doctor, ListsAllVariablesOnRequest) {
  const Outcome done = doctor_with({"LOGLEVEL=DEBUG"}, {"--variables"});
  EXPECT_EQ(done.code, 0);
  EXPECT_TRUE(contains(done.out, "set  LOGLEVEL=DEBUG\n"));
  EXPECT_TRUE(contains(done.out, "-    CUDA_LAUNCH_BLOCKING\n"));
  EXPECT_TRUE(contains(done.out, "usual: expandable_segments:True"));
  const auto json = nlohmann::json::parse(doctor_with({"LOGLEVEL=\xff"}, {"--json"}).out);
  EXPECT_GE(json.at("variables").size(), 20U);
}

}  // namespace
}  // namespace braid::test
