// SPDX-License-Identifier: BSD-3-Clause
// Made-up data in the layouts that braid reads: `braid data make`, the demo and the tests.
//
//   data::make_weather("data/weather", {.channels = 4, .height = 32, .width = 64, .frames = 700});
//
// made.json in the folder lists what was made. Without `force` no other file is overwritten, and a
// folder that holds other files is refused (ConfigError); so is a disk with too little free space
// (StorageError).
#pragma once
#include <cstdint>
#include <filesystem>

#include "braid/data/progress.h"

namespace braid::data {

// Smooth random fields carried by a flow (periodic in longitude), so that frame t+1 can be
// predicted from frame t better than by repeating it. Writes dir/{train,valid,test}/YYYY.h5 with
// `fields` [T,C,H,W] f4 and dir/stats/global_{means,stds}.npy.
struct WeatherOptions {
  int64_t channels = 20, height = 360, width = 720;
  int64_t frames = 1460;  // a year
  int64_t train_years = 1, valid_years = 1, test_years = 1;
  int64_t first_year = 1990;
  uint64_t seed = 1;
  bool force = false;  // write although the folder holds files of others
};
void make_weather(const std::filesystem::path& dir, WeatherOptions options,
                  const Progress& progress = {});

// SuperBench layout: one file a year, `fields` [days, 3, H+1, W] in physical units with the channel
// means and stds of ERA5.
struct SlicesOptions {
  int64_t channels = 3, height = 720, width = 1440, days = 365, years = 1, first_year = 2008;
  uint64_t seed = 1;
  bool force = false;
};
void make_slices(const std::filesystem::path& dir, SlicesOptions options,
                 const Progress& progress = {});

// Tokens of a first-order Markov chain, as uint16 (or uint32 above 65,536 words), with the llm.c
// header if asked.
struct TokensOptions {
  int64_t tokens = 1 << 20, vocabulary = 50257;
  bool header = true;
  uint64_t seed = 1;
  bool force = false;
};
void make_tokens(const std::filesystem::path& file, TokensOptions options,
                 const Progress& progress = {});

}  // namespace braid::data
