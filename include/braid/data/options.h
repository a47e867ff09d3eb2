// SPDX-License-Identifier: BSD-3-Clause
// The `data:` section of a config, and the source it means.
#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "braid/core/options.h"
#include "braid/data/source.h"
#include "braid/data/statistics.h"

namespace braid::data {

enum class Kind { frames, crops, tokens, text, spiral, synthetic };
enum class Split { train, valid, test };
enum class ChangedStatistics { refuse, files, checkpoint };
enum class Pairs { all, reference };  // of frames: every pair, or by the rule of the course
enum class Missing { error, fill };   // what becomes of missing values in a sample

struct DataOptions {
  Kind kind = Kind::synthetic;
  std::string train, valid,
      test;  // folder of HDF5 files, or a pattern of token files, or a text file
  std::string dataset = "fields";      // name in the HDF5 files
  std::vector<std::string> variables;  // netCDF-4: one variable per channel, instead of `dataset`
  std::vector<double> levels;          // netCDF-4: the levels to take, by their value; empty: all
  std::vector<std::string> names;      // of the channels; empty: as the files call them
  std::string means, stds;  // .npy of [1,C,1,1] or [C], f4 or f8; empty: no normalisation
  // A resumed run whose files of statistics differ from those in the checkpoint.
  ChangedStatistics changed_statistics = ChangedStatistics::refuse;
  Statistics statistics = {};  // not a key: used instead of the files, by key of the config
  Missing missing = Missing::error;
  int64_t step = 1;           // frames: target is this many frames later
  Pairs pairs = Pairs::all;   // frames
  std::vector<int64_t> size;  // frames: crop to [H, W] from the top left; crops: side of a square
                              // crop, empty: the whole slice
  int64_t channels = 0;       // 0: all in the file
  int64_t scale = 2;          // crops: the input is this much coarser
  std::string reduce = "bicubic";  // crops: bicubic, uniform, noisy_uniform
  double noise_ratio = 0;          // crops: of noisy_uniform
  int64_t patches = 8;             // crops: random crops a snapshot and epoch
  std::optional<int64_t> limit_train, limit_valid, limit_test;  // the first N samples
  int64_t sequence = 1024;                                      // tokens, text: length of a sample
  int64_t token_bytes = 2;  // tokens: width in files without a header, 2 or 4
  int64_t points = 10000;   // spiral
  double noise = 0.05;      // spiral
  int64_t data_seed = 42;   // spiral, synthetic: of the data themselves
  std::string pattern =
      "smooth";  // synthetic: smooth (waves; the target is the field moved on), random
  std::vector<int64_t> input_shape, target_shape;  // synthetic
  int64_t samples = 64;                            // synthetic: a split
  int64_t classes =
      0;  // synthetic: > 0 gives int64 targets (and inputs, for token models) below it
  int64_t workers = 2;        // reader threads
  int64_t queue = 2;          // batches read ahead
  bool check_finite = false;  // stop at a NaN in the data, naming file and sample
};

void describe(Fields& fields, DataOptions& options);

// Throws DataError or ConfigError: missing folder, no files, wrong dataset, truncated file, wrong
// length of means, ...
std::shared_ptr<const Source> open_source(const DataOptions& options, Split split, uint64_t seed);
bool has_split(const DataOptions& options, Split split);

}  // namespace braid::data
