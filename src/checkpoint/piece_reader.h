// SPDX-License-Identifier: BSD-3-Clause
// Reads parts of a stored piece into a tensor and checks the hashes of what it reads.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include <ATen/core/Tensor.h>

#include "checkpoint/catalog.h"
#include "checkpoint/hashed_file.h"
#include "checkpoint/runs.h"

namespace braid::checkpoint {

inline constexpr int64_t read_bytes = int64_t{1} << 20;  // the hash finds them in the cache

StorageError differs(const Catalog& catalog, const std::string& file, const std::string& what);

class PieceReader {
 public:
  PieceReader(const Catalog& catalog, const StoredPiece& piece, const std::string& file,
              FileReader& in);

  // `parts` ascend by their place in the piece; in_wanted counts in `flat`. From front to back,
  // each byte at most once.
  void read(const std::vector<CommonRun>& parts, const at::Tensor& flat);

 private:
  bool direct() const;  // bytes of the file are those of the tensor
  bool reaches(int64_t end) const;
  void take(int64_t at, int64_t bytes);
  void spread(const char* from, int64_t low, int64_t high);
  void check(size_t run, uint64_t hash) const;

  const Catalog& catalog_;
  const StoredPiece& piece_;
  const std::string& file_;
  FileReader& in_;
  int64_t size_;  // of an element
  const std::vector<CommonRun>* parts_ = nullptr;
  size_t next_ = 0;  // the first part that does not end before what is read
  at::Tensor flat_;
  std::string scratch_;
  RunningHash hash_;
};

}  // namespace braid::checkpoint
