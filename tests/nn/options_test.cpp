// SPDX-License-Identifier: BSD-3-Clause
#include "braid/nn/options.h"

#include <gtest/gtest.h>

#include "support/expect.h"

namespace braid::nn {
namespace {

ModelOptions read_model(std::string_view yaml) {
  return read_options<ModelOptions>(Config::parse(yaml, "model.yaml"));
}

TEST(ModelOptions, TakeTheFieldsOfTheNamedModel) {
  const ModelOptions swinir = read_model(
      "{name: swinir, upsampler: nearest+conv, residual: 3conv, scale: 4, width: 240, "
      "depths: [6, 6], heads: [8, 8]}");
  EXPECT_EQ(swinir.name, ModelName::swinir);
  EXPECT_EQ(swinir.swinir.upsampler, Upsampler::nearest_conv);
  EXPECT_EQ(swinir.swinir.residual, Residual::conv3);
  EXPECT_EQ(swinir.swinir.heads, (std::vector<int64_t>{8, 8}));
  EXPECT_EQ(make_model(swinir, {.device = c10::kMeta})->name(), "swinir");

  const ModelOptions vit = read_model("{name: vit, image: [64, 128], width: 96}");
  EXPECT_EQ(vit.vit.image, (std::vector<int64_t>{64, 128}));
  EXPECT_EQ(vit.vit.depth, 12) << "what is not given keeps its default";
}

TEST(ModelOptions, EveryNameMakesItsModel) {
  for (const char* name : {"mlp", "vit", "swinir", "gpt", "llama"}) {
    const ModelOptions options = read_model(std::string("{name: ") + name + "}");
    EXPECT_EQ(make_model(options, {.device = c10::kMeta})->name(), name);
  }
}

TEST(ModelOptions, RefuseKeysOfOtherModels) {
  const std::string text = test::error_of([] { read_model("{name: vit, windw: 8}"); });
  EXPECT_TRUE(test::contains(text, "windw"));
  EXPECT_TRUE(test::contains(test::error_of([] { read_model("{name: vti}"); }), "vit"));
  EXPECT_TRUE(test::contains(test::error_of([] { read_model("{name: vit, patch: 0}"); }), "patch"));
}

}  // namespace
}  // namespace braid::nn
