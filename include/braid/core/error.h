// SPDX-License-Identifier: BSD-3-Clause
// Errors that say what went wrong (with the values), why (the rule) and what to type.
//
//   throw ConfigError({.what = "mesh.tensor = 5 does not divide model.heads = 12",
//                      .why = "a rank of the tensor axis holds whole attention heads",
//                      .fix = "set mesh.tensor to one of 1, 2, 3, 4, 6, 12",
//                      .where = "gpt.yaml:14"});
#pragma once
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace braid {

struct Complaint {
  std::string what;
  std::string why;
  std::string fix;
  std::string where = {};  // file:line, if a file is to blame
};

// Exit codes of the command line; docs/exit_codes.md explains them.
enum class Exit : int {
  ok = 0,
  internal = 1,     // a broken invariant or an unknown failure
  usage = 2,        // wrong flags
  config = 3,       // a wrong config
  data = 4,         // unreadable or wrong input data
  comm = 5,         // network or a lost rank
  not_finite = 6,   // NaN or infinity in training
  storage = 7,      // disk full, no permission
  memory = 8,       // a tensor did not fit into the memory of the device
  interrupted = 75  // stopped by a signal after saving; start again with --resume (EX_TEMPFAIL)
};

class Error : public std::runtime_error {
 public:
  Error(Complaint complaint, Exit code);
  const Complaint& complaint() const { return complaint_; }
  Exit code() const { return code_; }

 private:
  Complaint complaint_;
  Exit code_;
};

struct ConfigError : Error {
  explicit ConfigError(Complaint c) : Error(std::move(c), Exit::config) {}
};
struct DataError : Error {
  explicit DataError(Complaint c) : Error(std::move(c), Exit::data) {}
};
struct CommError : Error {
  explicit CommError(Complaint c) : Error(std::move(c), Exit::comm) {}
};
struct StorageError : Error {
  explicit StorageError(Complaint c) : Error(std::move(c), Exit::storage) {}
};
struct NotFiniteError : Error {
  explicit NotFiniteError(Complaint c) : Error(std::move(c), Exit::not_finite) {}
};
struct MemoryError : Error {
  explicit MemoryError(Complaint c) : Error(std::move(c), Exit::memory) {}
};
struct InternalError : Error {
  explicit InternalError(Complaint c) : Error(std::move(c), Exit::internal) {}
};

// What the user sees: "braid: where: what\n  why: ...\n  fix: ...".
std::string explain(const Complaint& complaint);

// The candidate with the smallest edit distance, or "" if none is near enough to be a typing error.
std::string nearest(std::string_view word, const std::vector<std::string>& candidates);

}  // namespace braid
