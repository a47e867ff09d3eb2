// SPDX-License-Identifier: BSD-3-Clause
// What is said of wrong flags and words.
#include <gtest/gtest.h>

#include "cli/app.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

// In this process: what a parser refuses or explains needs no run.
Outcome parsed(Words words) {
  words = braid_words(std::move(words));
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Outcome done;
  done.code = cli::run(static_cast<int>(arguments.size()), arguments.data());
  done.out = testing::internal::GetCapturedStdout();
  done.err = testing::internal::GetCapturedStderr();
  return done;
}

TEST(Usage, EveryCommandExplainsItself) {
  for (const char* command : {"train", "eval", "predict", "parity", "profile", "inspect",
                              "schedule", "report", "convert", "data", "doctor", "help"}) {
    const Outcome done = parsed({command, "--help"});
    EXPECT_EQ(done.code, 0) << command;
    EXPECT_TRUE(contains(done.out, "--help"));
  }
  EXPECT_EQ(parsed({"--version"}).code, 0);
  EXPECT_TRUE(contains(parsed({"train", "--help"}).out, "exit with code 75"));
}

struct WrongWords {
  Words words;
  Words said;
};

TEST(Usage, WrongWordsAreExitCodeTwoAndASentence) {
  const WrongWords all[] = {
      {{}, {"a command is needed", "the commands are train, eval", "see braid --help"}},
      {{"trian", "a.yaml"}, {"there is no command trian", "did you mean train?"}},
      {{"fly"}, {"there is no command fly", "fix: see braid --help"}},
      {{"--versoin"}, {"there is no flag --versoin", "did you mean --version?"}},
      {{"-v"}, {"there is no flag -v", "fix: see braid --help"}},
      {{"train"}, {"train needs CONFIG", "CONFIG: YAML file", "fix: braid train CONFIG; see"}},
      {{"convert", "a"}, {"convert needs TO", "braid convert FROM TO"}},
      {{"train", "a.yaml", "--rank", "3"},
       {"train has no flag --rank", "did you mean --ranks? See braid train --help"}},
      {{"plan", "a.yaml", "--gpu=8"}, {"plan has no flag --gpu\n", "did you mean --gpus?"}},
      {{"train", "--quite"}, {"train has no flag --quite", "did you mean --quiet?"}},
      {{"train", "a.yaml", "b.yaml"},
       {"train does not know what to do with \"b.yaml\"", "besides flags it takes CONFIG"}},
      {{"doctor", "me"}, {"doctor does not know what to do with \"me\"", "it takes flags only"}},
      {{"data"}, {"data needs a command", "the commands are make, check, stats"}},
      {{"data", "make", "rain", "x"}, {"data make has no command rain", "weather, slices, tokens"}},
      {{"data", "chek", "x"}, {"data has no command chek", "did you mean check?"}},
      {{"data", "stats", "x", "--dataset", "a", "--variables", "b"}, {"excludes"}},
      {{"eval", "run", "--split", "some"},
       {"eval: --split: some not in", "--split: data to evaluate"}},
      {{"train", "a.yaml", "--ranks", "0"}, {"--ranks: Value 0 not in range 1 to 4096"}},
      {{"predict", "run", "--steps", "0"},
       {"predict: --steps: 0 is not a number above 0", "--steps: forecast"}},
      {{"predict", "run", "--steps", "x"}, {"predict: --steps: x is not a number above 0"}},
      {{"predict", "run", "--frame", "x"}, {"--frame = x", "--frame: frame to take"}},
      {{"plan", "a.yaml", "--seconds", "-1"}, {"--seconds: -1 is not a number of 0 or more"}},
      {{"plan", "a.yaml", "--scaling", "1,0"}, {"--scaling: 0 is not a number above 0"}},
  };
  for (const WrongWords& wrong : all)
    Cli::expect_complaint(parsed(wrong.words), Exit::usage, wrong.said);
}

TEST(Usage, HelpOfAKeyThatIsNot) {
  Cli::expect_complaint(parsed({"help", "config", "trian"}), Exit::config,
                        {"no key of a config begins with trian", "did you mean train?"});
  Cli::expect_complaint(parsed({"help", "config", "train.sheet"}), Exit::config,
                        {"begins with train.sheet"});
  EXPECT_EQ(parsed({"help", "config", "train.st"}).code, 0);
}

}  // namespace
}  // namespace braid::test
