// SPDX-License-Identifier: BSD-3-Clause
// What `braid data make` has written into a folder, as made.json there tells: it may be written
// over, files of others may not.
//
//   Made made("data/weather", {.files = {"train/1990.h5"}, .bytes = 4'000'000});  // refuses
//   ... write the files ...
//   made.finish();
#pragma once
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace braid::data {

struct ToMake {
  std::vector<std::string> files;  // relative to the folder
  int64_t bytes = 0;               // of all files together
  std::string what = {};           // "3 years of 1460 frames of [20, 360, 720]", for messages
  std::string smaller = {};        // the flags that make it smaller
  bool whole_folder = true;        // the folder is for these files alone
  bool force = false;
};

class Made {
 public:
  // Throws ConfigError if files of others are in the way, StorageError if the disk is too full.
  Made(std::filesystem::path dir, ToMake plan);
  // Notes sizes; removes what was made here earlier and is not part of it any more.
  void finish();

 private:
  using Sizes = std::map<std::string, int64_t>;  // -1: it was being written
  void read_earlier();
  void refuse_foreign();
  void refuse_full_disk() const;
  void write(const Sizes& sizes) const;
  bool is_ours(const std::string& name) const;
  std::vector<std::string> foreign_files() const;

  std::filesystem::path dir_;
  ToMake plan_;
  Sizes earlier_;
};

// `fix`, and the command that makes data in `where` if nothing is there that it could spoil.
std::string or_make(const std::string& fix, const std::string& kind,
                    const std::filesystem::path& where);

// Bytes of floats in so many elements; the largest number if they are more than that.
int64_t float_bytes(const std::vector<int64_t>& sizes);

}  // namespace braid::data
