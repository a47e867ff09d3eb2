// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "braid/core/error.h"
#include "braid/core/in_parts.h"
#include "braid/data/make.h"
#include "braid/data/stats.h"
#include "data/field_writer.h"
#include "data/made.h"
#include "data/moments.h"
#include "data/waves.h"

namespace braid::data {
namespace {

// One file of fields: latent fields of the year, mixed into channels.
class YearMaker {
 public:
  YearMaker(FieldShape shape, const WaveOptions& waves, RandomKey key,
            const std::vector<ChannelStats>& units)
      : shape_(shape), grid_(waves, shape.height, shape.width), units_(units) {
    for (int64_t c = 0; c < shape.channels; ++c)
      latent_.emplace_back(waves, key.with(static_cast<uint64_t>(c)));
  }

  // Adds what was written to `sums`, a channel each, if there are some.
  void write(const std::filesystem::path& file, std::vector<Moments>* sums,
             const std::function<void()>& frame_done);

 private:
  void next_amplitudes(std::vector<std::complex<float>>& out);
  void add_sums(const float* frames, int64_t count, std::vector<Moments>& sums) const;

  FieldShape shape_;
  WaveGrid grid_;
  std::vector<ChannelStats> units_;
  std::vector<WaveField> latent_;
};

// Channel c is 0.8 of its own latent field and 0.6 of its neighbour's: unit variance, and channels
// know of each other.
void YearMaker::next_amplitudes(std::vector<std::complex<float>>& out) {
  const size_t channels = latent_.size();
  for (size_t c = 0; c < channels; ++c) {
    const auto& own = latent_[c].amplitudes();
    const auto& other = latent_[(c + 1) % channels].amplitudes();
    for (size_t i = 0; i < own.size(); ++i)
      out.push_back(channels == 1 ? own[i] : 0.8F * own[i] + 0.6F * other[i]);
  }
  for (WaveField& field : latent_) field.advance();
}

void YearMaker::add_sums(const float* frames, int64_t count, std::vector<Moments>& sums) const {
  const int64_t plane = shape_.height * shape_.width;
  for (int64_t i = 0; i < count * shape_.channels; ++i)
    sums[static_cast<size_t>(i % shape_.channels)].add(moments_of(frames + i * plane, plane));
}

void YearMaker::write(const std::filesystem::path& file, std::vector<Moments>* sums,
                      const std::function<void()>& frame_done) {
  FieldWriter writer(file, "fields", shape_);
  const int64_t plane = shape_.height * shape_.width, frame = shape_.channels * plane;
  const int64_t block =
      std::clamp<int64_t>((32 << 20) / (frame * 4), 1, 64);  // about 32 MB at a time
  std::vector<float> buffer(static_cast<size_t>(block * frame));
  for (int64_t first = 0; first < shape_.frames; first += block) {
    const int64_t count = std::min(block, shape_.frames - first);
    std::vector<std::complex<float>> amplitudes;
    for (int64_t i = 0; i < count; ++i) next_amplitudes(amplitudes);
    const auto modes = static_cast<int64_t>(amplitudes.size()) / (count * shape_.channels);
    in_parts(count * shape_.channels, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const auto c = static_cast<size_t>(i % shape_.channels);
        grid_.draw(amplitudes.data() + i * modes, static_cast<float>(units_[c].mean),
                   static_cast<float>(units_[c].std), buffer.data() + i * plane);
      }
    });
    if (sums != nullptr) add_sums(buffer.data(), count, *sums);
    writer.write(first, count, buffer.data());
    for (int64_t i = 0; i < count; ++i) frame_done();
  }
  writer.finish();
}

bool few_years(int64_t years) { return years <= 10'000; }

void check_make(bool good, const std::string& what) {
  if (good) return;
  throw ConfigError({.what = what,
                     .why =
                         "sizes, frames and years are counts, a file needs 3 frames, and there are "
                         "at most 10,000 years",
                     .fix = "give other numbers"});
}

// Counts frames for the progress bar.
struct FrameCounter {
  const Progress& progress;
  int64_t total = 0, done = 0;
  void operator()() {
    ++done;
    if (progress) progress(done, total);
  }
};

std::string year_file(const char* folder, int64_t year) {
  return fmt::format("{}{:04}.h5", folder, year);
}

// Year after year: train, valid, test.
std::vector<std::string> weather_files(const WeatherOptions& options) {
  std::vector<std::string> files;
  int64_t year = options.first_year;
  const auto add = [&](const char* folder, int64_t years) {
    for (int64_t y = 0; y < years; ++y) files.push_back(year_file(folder, year++));
  };
  add("train/", options.train_years);
  add("valid/", options.valid_years);
  add("test/", options.test_years);
  return files;
}

std::vector<std::string> slices_files(const SlicesOptions& options) {
  std::vector<std::string> files;
  for (int64_t y = 0; y < options.years; ++y)
    files.push_back(year_file("", options.first_year + y));
  return files;
}

std::vector<std::string> with_stats(std::vector<std::string> files) {
  for (const char* name : {"stats/global_means.npy", "stats/global_stds.npy"})
    files.emplace_back(name);
  return files;
}

}  // namespace

void make_weather(const std::filesystem::path& dir, WeatherOptions options,
                  const Progress& progress) {
  const int64_t years = options.train_years + options.valid_years + options.test_years;
  check_make(options.channels > 0 && options.height > 1 && options.width > 3 &&
                 options.frames > 2 && few_years(options.train_years) &&
                 few_years(options.valid_years) && few_years(options.test_years) &&
                 options.train_years > 0 && options.valid_years >= 0 && options.test_years >= 0,
             fmt::format("weather of [{}, {}, {}] with {} frames a year, {} years",
                         options.channels, options.height, options.width, options.frames, years));
  const FieldShape shape{options.frames, options.channels, options.height, options.width};
  Made made(dir,
            {.files = with_stats(weather_files(options)),
             .bytes = float_bytes(
                 {years, options.frames, options.channels, options.height, options.width}),
             .what = fmt::format("{} years of {} frames of [{}, {}, {}] in 32-bit floats", years,
                                 options.frames, options.channels, options.height, options.width),
             .smaller = "--shape, --frames, --years, --valid-years, --test-years",
             .force = options.force});
  const std::vector<std::string> files = weather_files(options);
  const WaveOptions waves{.zonal = std::min<int64_t>(6, options.width / 4),
                          .meridional = std::min<int64_t>(6, options.height / 2)};
  // They differ from channel to channel, as those of winds and temperatures do.
  std::vector<ChannelStats> units;
  for (int64_t c = 0; c < options.channels; ++c)
    units.push_back({.mean = static_cast<double>(c) + (c % 2 == 0 ? 0.0 : 250.0),
                     .std = 2.0 + 3.0 * static_cast<double>(c % 5)});
  FrameCounter counter{progress, years * options.frames};
  std::vector<Moments> sums(units.size());
  for (int64_t y = 0; y < years; ++y) {
    const int64_t year = options.first_year + y;
    YearMaker maker(shape, waves,
                    random_key(options.seed, "weather").with(static_cast<uint64_t>(year)), units);
    maker.write(dir / files[static_cast<size_t>(y)], y < options.train_years ? &sums : nullptr,
                [&] { counter(); });
  }
  std::vector<ChannelStats> stats;
  for (const Moments& channel : sums) stats.push_back({.mean = channel.mean, .std = channel.std()});
  write_stats(dir / "stats", stats);
  made.finish();
}

void make_slices(const std::filesystem::path& dir, SlicesOptions options,
                 const Progress& progress) {
  check_make(options.channels > 0 && options.height > 1 && options.width > 3 && options.days > 0 &&
                 options.years > 0 && few_years(options.years),
             fmt::format("slices of [{}, {}, {}], {} days, {} years", options.channels,
                         options.height, options.width, options.days, options.years));
  // Wind speed at 10 m, temperature at 2 m, total column water vapour of ERA5.
  constexpr std::array<double, 3> means = {6.3024, 278.3945, 18.4262},
                                  stds = {3.7376, 21.0588, 16.4687};
  std::vector<ChannelStats> units;
  for (int64_t c = 0; c < options.channels; ++c)
    units.push_back(
        {.mean = means[static_cast<size_t>(c % 3)], .std = stds[static_cast<size_t>(c % 3)]});
  // Fine waves too: what a coarse grid cannot show is what super-resolution has to find.
  const WaveOptions waves{.zonal = std::min<int64_t>(32, options.width / 4),
                          .meridional = std::min<int64_t>(32, options.height / 2),
                          .slope = 1.2};
  const FieldShape shape{options.days, options.channels, options.height + 1, options.width};
  Made made(dir, {.files = with_stats(slices_files(options)),
                  .bytes = float_bytes({options.years, options.days, options.channels,
                                        options.height + 1, options.width}),
                  .what = fmt::format("{} years of {} days of [{}, {}, {}] in 32-bit floats",
                                      options.years, options.days, options.channels,
                                      options.height + 1, options.width),
                  .smaller = "--shape, --days, --years",
                  .force = options.force});
  FrameCounter counter{progress, options.years * options.days};
  for (int64_t year = options.first_year; year < options.first_year + options.years; ++year) {
    YearMaker maker(shape, waves,
                    random_key(options.seed, "slices").with(static_cast<uint64_t>(year)), units);
    maker.write(dir / fmt::format("{:04}.h5", year), nullptr, [&] { counter(); });
  }
  write_stats(dir / "stats", units);
  made.finish();
}

}  // namespace braid::data
