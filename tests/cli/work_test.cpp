// SPDX-License-Identifier: BSD-3-Clause
// What the commands do with small runs: train, eval, predict, parity, report.
#include <gtest/gtest.h>

#include <ATen/ops/tensor.h>

#include "braid/checkpoint/safetensors.h"
#include "braid/checkpoint/store.h"
#include "braid/data/arrays.h"
#include "braid/data/npy.h"
#include "braid/nn/loss.h"
#include "braid/train/predict.h"
#include "braid/train/session.h"
#include "cli/braid.h"

namespace braid::test {
namespace {

namespace fs = std::filesystem;

bool is_png(const fs::path& file) { return text_of(file).starts_with("\x89PNG\r\n"); }

TEST_F(Cli, TrainWritesTheRunFolderAndSaysWhere) {
  const Outcome done = train("mlp");
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(contains(done.out, "results are in " + at("mlp")));
  for (const char* file : {"config.yaml", "log.jsonl", "report.html", "out.log", "checkpoints"})
    EXPECT_TRUE(fs::exists(dir / "mlp" / file)) << file;
  EXPECT_TRUE(contains(text_of(dir / "mlp/log.jsonl"), config("mlp")));  // what was typed
  const Outcome again = train("mlp");
  EXPECT_TRUE(contains(again.out, "results are in " + at("mlp-2")));
  EXPECT_TRUE(contains(again.err, at("mlp") + " already holds a run: this run goes into"));
  expect_complaint(train("mlp", {"--set", "run.exists=refuse"}), Exit::config,
                   {"already holds a run", "--resume"});
}

TEST_F(Cli, QuietSaysNothingButTheEnd) { EXPECT_EQ(train("mlp", {"--quiet"}).err, ""); }

// A daemon's children may have no open files: those of the run must not take the numbers of stdout
// and stderr, or they get what is said there.
TEST_F(Cli, TrainWithoutStdoutAndStderr) {
  const std::string line = std::string(BRAID_COMMAND) + " train " + config("mlp");
  EXPECT_EQ(run_command({"/bin/sh", "-c", line + " <&- >&- 2>&-"}).code, 0);
  std::ifstream log(dir / "mlp/log.jsonl");
  size_t records = 0;
  for (std::string record; std::getline(log, record); ++records)
    EXPECT_TRUE(nlohmann::json::accept(record)) << record;
  EXPECT_GT(records, 12u);
  const auto saved = checkpoint::Store(dir / "mlp/checkpoints").list();
  ASSERT_FALSE(saved.empty());
  EXPECT_EQ(saved.back().filename(), "step-00000012");
}

// As valgrind and ld.so do it: the program that runs is not the file that was asked for.
TEST_F(Cli, TrainsWhenStartedByTheLoader) {
  const fs::path loader = "/lib64/ld-linux-x86-64.so.2";
  if (!fs::exists(loader)) GTEST_SKIP() << "no " << loader;
  const Outcome done = run_command({loader, BRAID_COMMAND, "train", config("mlp"), "--quiet"});
  EXPECT_EQ(done.code, 0) << done.err;
}

TEST_F(Cli, EvalGivesWhatTheRunValidated) {
  const nlohmann::json trained = json_of(train("mlp", {"--json"}));
  const nlohmann::json newest = json_of(braid_run({"eval", at("mlp"), "--json"}));
  EXPECT_EQ(newest["samples"], 15);
  EXPECT_EQ(newest["loss"], trained["metrics"]["loss"]);  // of the averaged weights
  EXPECT_EQ(newest["metrics"]["accuracy"], trained["metrics"]["accuracy"]);
  const nlohmann::json test = json_of(braid_run({"eval", at("mlp"), "--split", "test", "--json"}));
  EXPECT_EQ(test["loss"], trained["metrics"]["test_loss"]);
  expect_complaint(braid_run({"eval", at("mlp"), "--set", "model.hidden=[16]"}), Exit::storage,
                   {"leave out the --set"});
  EXPECT_EQ(json_of(braid_run({"eval", at("mlp"), "--split", "train", "--json"}))["samples"], 70);
  EXPECT_TRUE(contains(braid_run({"eval", at("mlp")}).out, "accuracy"));
}

// The config rates by accuracy, so that is what best means.
TEST_F(Cli, EvalBestIsByTheMetricOfTheRun) {
  ASSERT_EQ(train("mlp", {"--set", "checkpoint.keep=9", "--set", "train.steps=40"}).code, 0);
  double highest = -1;
  std::string wanted;
  for (const fs::path& path : checkpoint::Store(dir / "mlp/checkpoints").list()) {
    const double value = checkpoint::load(path).metrics.at("accuracy");
    if (value > highest) highest = value, wanted = path.string();
  }
  const nlohmann::json best =
      json_of(braid_run({"eval", at("mlp"), "--checkpoint", "best", "--json"}));
  EXPECT_EQ(best["checkpoint"], wanted);
  EXPECT_DOUBLE_EQ(best["metrics"]["accuracy"], highest);
  const nlohmann::json named =
      json_of(braid_run({"eval", at("mlp"), "--checkpoint", "step-00000010", "--json"}));
  EXPECT_EQ(named["checkpoint"], at("mlp/checkpoints/step-00000010"));
  EXPECT_EQ(json_of(braid_run({"eval", wanted, "--json"}))["loss"], best["loss"]);
  expect_complaint(braid_run({"eval", at("mlp"), "--checkpoint", "step-7"}), Exit::data,
                   {"has no checkpoint step-7", "step-00000010"});
}

TEST_F(Cli, PredictForecast) {
  make_weather();
  ASSERT_EQ(train("vit", {"--quiet"}).code, 0);
  const std::string file = at("weather/test/1992.h5");
  const at::Tensor now = data::read_array(file, {.frame = 7});
  data::write_npy(dir / "now.npy", now);
  for (const Words& input : {Words{file, "--frame", "7"}, Words{at("now.npy")}}) {
    Words words = {"predict", at("vit"), "--steps", "3", "--out", at("f.npy"), "--input"};
    words.insert(words.end(), input.begin(), input.end());
    const Outcome done = braid_run(words);
    ASSERT_EQ(done.code, 0) << done.err;
    EXPECT_TRUE(is_png(dir / "f.png"));
    const train::RunOptions run = train::load_run(config("vit"));
    const auto model = train::build_model(run);
    train::copy_weights(
        *model, checkpoint::load(dir / "vit/checkpoints/step-00000004").state.part("model"));
    const at::Tensor expected =
        train::forecast(*model, train::normalisation_of(run.data, 3), now, 3);
    EXPECT_TRUE(data::read_npy(dir / "f.npy").allclose(expected, 1e-5, 1e-5));
  }
  const Outcome h5 =
      braid_run({"predict", at("vit"), "--input", file, "--out", at("g.h5"), "--channel", "2"});
  ASSERT_EQ(h5.code, 0) << h5.err;
  EXPECT_EQ(data::read_array(dir / "g.h5").sizes(), (std::vector<int64_t>{1, 3, 8, 16}));
  EXPECT_TRUE(is_png(dir / "g.png"));
}

TEST_F(Cli, PredictRefusesWhatDoesNotFit) {
  make_weather();
  ASSERT_EQ(train("vit", {"--quiet"}).code, 0);
  const auto predict = [&](Words more) {
    Words words = {"predict", at("vit"), "--out", at("f.npy")};
    words.insert(words.end(), more.begin(), more.end());
    return braid_run(words);
  };
  const std::string file = at("weather/test/1992.h5");
  data::write_npy(dir / "small.npy", data::read_array(file, {.frame = 0}).narrow(1, 0, 4));
  data::write_npy(dir / "few.npy", data::read_array(file, {.frame = 0}).narrow(0, 0, 2));
  expect_complaint(predict({}), Exit::config, {"there is no --input"});
  expect_complaint(predict({"--input", at("small.npy")}), Exit::data,
                   {"is 4 x 16, the model takes 8 x 16"});
  expect_complaint(predict({"--input", at("few.npy")}), Exit::data,
                   {"has 2 channels, the model takes 3"});
  expect_complaint(predict({"--input", file, "--frame", "99"}), Exit::data, {"frame 99"});
  expect_complaint(predict({"--input", file, "--channel", "3"}), Exit::config, {"--channel 3"});
  expect_complaint(predict({"--input", file, "--dataset", "feilds"}), Exit::data,
                   {"no dataset \"feilds\"", "--dataset fields"});
  expect_complaint(predict({"--input", at("none.npy")}), Exit::data, {"none.npy"});
}

TEST_F(Cli, PredictFinerPicture) {
  ASSERT_EQ(train("swinir", {"--quiet"}).code, 0);
  data::write_npy(dir / "c.npy", at::tensor({1.0F}).expand({3, 16, 24}).contiguous());
  const Outcome done =
      braid_run({"predict", at("swinir"), "--input", at("c.npy"), "--out", at("fine.h5")});
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_EQ(data::read_array(dir / "fine.h5").sizes(), (std::vector<int64_t>{3, 32, 48}));
  EXPECT_TRUE(is_png(dir / "fine.png"));
}

TEST_F(Cli, PredictTokensAndText) {
  ASSERT_EQ(train("gpt", {"--quiet"}).code, 0);
  const auto tokens = [&](const std::string& prompt, const std::string& seed) {
    return braid_run({"predict", at("gpt"), "--prompt", prompt, "--tokens", "5", "--seed", seed});
  };
  const Outcome done = tokens("1 2 3", "1");
  ASSERT_EQ(done.code, 0) << done.err;
  EXPECT_TRUE(done.out.starts_with("1 2 3 "));
  EXPECT_EQ(std::count(done.out.begin(), done.out.end(), ' '), 7);
  EXPECT_EQ(tokens("1 2 3", "1").out, done.out);
  expect_complaint(tokens("1 two", "1"), Exit::config,
                   {"\"two\" in --prompt is not a token number"});
  expect_complaint(tokens("1 32", "1"), Exit::config, {"token 32", "tokens 0 to 31"});
  expect_complaint(tokens("", "1"), Exit::config, {"prompt"});
  ASSERT_EQ(train("text", {"--quiet"}).code, 0);
  const Outcome text = braid_run({"predict", at("text"), "--prompt", "hell", "--tokens", "3"});
  ASSERT_EQ(text.code, 0) << text.err;
  EXPECT_TRUE(text.out.starts_with("hell"));
  EXPECT_EQ(text.out.size(), 8u);
}

// Weights, input and target from files; output, loss and gradients as the library gives them.
TEST_F(Cli, ParityAppliesTheBareModel) {
  const train::RunOptions run = train::load_run(config("vit"));
  const auto model = nn::make_model(run.model, {.seed = 77});
  checkpoint::Tensors weights;
  for (const Param& param : model->params()) weights[param.name] = param.tensor.detach();
  checkpoint::write_safetensors(dir / "w.safetensors", weights);
  const at::Tensor input = at::tensor({0.5F, -1.0F}).repeat({2, 3, 8, 8});
  const at::Tensor target = input.mul(2).add(0.25);
  data::write_npy(dir / "x.npy", input);
  data::write_npy(dir / "t.npy", target);
  const Outcome done =
      braid_run({"parity", config("vit"), "--weights", at("w.safetensors"), "--input", at("x.npy"),
                 "--target", at("t.npy"), "--out", at("parity")});
  ASSERT_EQ(done.code, 0) << done.err;
  const at::Tensor output = model->forward(input, {});
  const at::Tensor loss = nn::loss(nn::Loss::relative_l2, output, target);
  loss.backward();
  EXPECT_TRUE(data::read_npy(dir / "parity/output.npy").allclose(output.detach(), 1e-5, 1e-6));
  const auto result = nlohmann::json::parse(text_of(dir / "parity/result.json"));
  EXPECT_NEAR(result["loss"], loss.item<double>(), 1e-6);
  EXPECT_EQ(result["parameters"], model->parameters());
  const auto gradients = checkpoint::read_safetensors(dir / "parity/gradients.safetensors").tensors;
  EXPECT_EQ(gradients.size(), model->params().size());
  for (const Param& param : model->params())
    EXPECT_TRUE(gradients.at(param.name).allclose(param.tensor.grad(), 1e-4, 1e-6)) << param.name;
}

TEST_F(Cli, ParityRefusesOtherWeights) {
  checkpoint::Tensors weights;
  for (const Param& param : nn::make_model(train::load_run(config("vit")).model, {})->params())
    weights[param.name] = param.tensor.detach();
  const auto parity_with = [&](const checkpoint::Tensors& changed) {
    checkpoint::write_safetensors(dir / "w.safetensors", changed);
    return braid_run({"parity", config("vit"), "--weights", at("w.safetensors"), "--input",
                      at("x.npy"), "--target", at("t.npy"), "--out", at("p")});
  };
  const std::string inspect = "braid inspect " + config("vit");
  checkpoint::Tensors changed = weights;
  changed.erase("head.weight");
  expect_complaint(parity_with(changed), Exit::storage,
                   {at("w.safetensors") + " has no tensor head.weight", inspect});
  changed["head.weight"] = at::tensor({1.0F, 2.0F});
  expect_complaint(
      parity_with(changed), Exit::storage,
      {"head.weight of " + at("w.safetensors") + " has shape 2, the model's", inspect});
  changed = weights;
  changed["extra"] = at::tensor({1.0F});
  expect_complaint(parity_with(changed), Exit::storage,
                   {at("w.safetensors") + " has a tensor that the model lacks: extra", inspect});
  for (const char* name : {"zz", "b", "a"}) changed[name] = at::tensor({1.0F});
  expect_complaint(parity_with(changed), Exit::storage,
                   {"has 4 tensors that the model lacks: a, b, extra, ...", inspect});
}

TEST_F(Cli, ReportOfTwoRunsIsOnePage) {
  ASSERT_EQ(train("mlp", {"--quiet"}).code, 0);
  ASSERT_EQ(
      train("mlp", {"--quiet", "--set", "run.dir=" + at("b"), "--set", "run.name=other"}).code, 0);
  const Outcome done = braid_run({"report", at("mlp"), at("b"), "--out", at("r.html")});
  ASSERT_EQ(done.code, 0) << done.err;
  const std::string page = text_of(dir / "r.html");
  EXPECT_TRUE(contains(page, "<html"));
  EXPECT_TRUE(contains(page, "other"));
  EXPECT_EQ(page.find("src=\"http"), std::string::npos);
  EXPECT_EQ(json_of(braid_run({"report", at("mlp"), at("b"), "--json"}))["runs"].size(), 2u);
  const Outcome none = braid_run({"report", at("nothing"), "--out", at("r.html")});
  expect_complaint(none, Exit::data, {"nothing"});
}

// libgomp reads its variables before main, so the program that trains is one that was started anew.
struct WaitingThreads : Cli {
  // What the process of a run was started with, and its name.
  std::pair<std::string, std::string> variables_and_name(const Words& given) {
    Words words = {"/usr/bin/env", "-u", "GOMP_SPINCOUNT", "-u", "OMP_WAIT_POLICY"};
    words.insert(words.end(), given.begin(), given.end());
    for (const std::string& word : braid_words({"train", config("long")})) words.push_back(word);
    fs::remove_all(dir / "long");
    Command run(words);
    EXPECT_TRUE(run.saw(dir / "long/log.jsonl", "\"step\":1,")) << run.err();
    const fs::path process = fs::path("/proc") / std::to_string(run.process());
    return {text_of(process / "environ"), text_of(process / "comm")};
  }
};

TEST_F(WaitingThreads, WaitBrieflyUnlessTheUserSaysHowLong) {
  const auto [variables, name] = variables_and_name({});
  EXPECT_TRUE(contains(variables, "GOMP_SPINCOUNT=3000"));
  EXPECT_EQ(name, "braid\n");
  EXPECT_FALSE(contains(variables_and_name({"OMP_WAIT_POLICY=active"}).first, "GOMP_SPINCOUNT"));
  EXPECT_TRUE(contains(variables_and_name({"GOMP_SPINCOUNT=7"}).first, "GOMP_SPINCOUNT=7"));
}

}  // namespace
}  // namespace braid::test
