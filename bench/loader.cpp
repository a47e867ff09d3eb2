// SPDX-License-Identifier: BSD-3-Clause
// Throughput of the loader on HDF5 frames: reads whole epochs and prints one JSON object.
// bench/loader.sh runs it beside its peer.
//
//   bench_loader DIR --make --frames 64            writes 360x720x20 weather there first
//   bench_loader DIR --workers 2 --batch 4 --epochs 3
#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <string>

#include "braid/core/error.h"
#include "braid/data/loader.h"
#include "braid/data/make.h"
#include "braid/data/options.h"

namespace {

using namespace braid;

std::map<std::string, int64_t> parse(int count, char** words) {
  std::map<std::string, int64_t> values = {
      {"workers", 2}, {"batch", 4}, {"epochs", 3}, {"frames", 64}, {"make", 0}};
  for (int i = 2; i < count; ++i) {
    const std::string name = std::string(words[i]).substr(2);
    if (name == "make")
      values[name] = 1;
    else if (values.count(name) > 0 && i + 1 < count)
      values[name] = std::atoll(words[++i]);
    else
      throw ConfigError({.what = fmt::format("unknown flag {}", words[i]),
                         .why = "",
                         .fix = "read bench/loader.cpp"});
  }
  return values;
}

// Reads all epochs and gives the seconds of the best: the first one fills the page cache.
void measure(const std::string& dir, std::map<std::string, int64_t>& flags) {
  data::DataOptions options;
  options.kind = data::Kind::frames;
  options.train = dir + "/train";
  options.means = dir + "/stats/global_means.npy";
  options.stds = dir + "/stats/global_stds.npy";
  const auto source = data::open_source(options, data::Split::train, 0);
  data::Loader loader(source, {.global_batch = flags["batch"], .workers = flags["workers"]});
  double best = 1e30, checksum = 0;
  for (int64_t epoch = 0; epoch < flags["epochs"]; ++epoch) {
    const auto start = std::chrono::steady_clock::now();
    while (auto batch = loader.next())
      for (int64_t k = 0; k < batch->samples;
           ++k)  // an epoch has one sum in any order: same data as the peer
        checksum += batch->target.select(0, k).const_data_ptr<float>()[0];
    best = std::min(
        best, std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  const int64_t samples = loader.steps_per_epoch() * flags["batch"];
  const auto& shape = source->spec().input.shape;
  const auto bytes = static_cast<double>(shape[0] * shape[1] * shape[2] * 4 * 2);
  const auto count = static_cast<double>(samples);
  fmt::print(R"({{"samples_per_second": {:.2f}, "gigabytes_per_second": {:.3f}, "samples": {}, )"
             R"("seconds": {:.4f}, "checksum": {:.4f}}})"
             "\n",
             count / best, count * bytes / best / 1e9, samples, best,
             checksum / static_cast<double>(flags["epochs"]));
}

}  // namespace

int main(int count, char** words) {
  try {
    auto flags = parse(count, words);
    const std::string dir = count > 1 ? words[1] : "data/bench";
    if (flags["make"] != 0)
      data::make_weather(dir, {.frames = flags["frames"], .valid_years = 0, .test_years = 0});
    else
      measure(dir, flags);
  } catch (const Error& error) {
    fmt::print(stderr, "{}\n", explain(error.complaint()));
    return static_cast<int>(error.code());
  }
  return 0;
}
