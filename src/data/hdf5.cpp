// SPDX-License-Identifier: BSD-3-Clause
#include "data/hdf5.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "braid/core/error.h"
#include "data/foreign.h"

namespace braid::data {
namespace {

// The library is one per process, so is its lock.
std::mutex& hdf5_mutex() {
  static std::mutex mutex;
  return mutex;
}

// Walking upward begins at the innermost entry: the first message that says something is the cause.
herr_t keep_message(unsigned, const H5E_error2_t* error, void* out) {
  auto& text = *static_cast<std::string*>(out);
  if (text.empty() && error->desc != nullptr) text = error->desc;
  return 0;
}

herr_t keep_dataset(hid_t, const char* name, const H5O_info_t* info, void* names) {
  if (info->type == H5O_TYPE_DATASET)
    static_cast<std::vector<std::string>*>(names)->emplace_back(name);
  return 0;
}

void check_readable(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor >= 0) {
    ::close(descriptor);
    return;
  }
  const int error = errno;
  throw DataError({.what = fmt::format("cannot open {}: {}", file.string(), std::strerror(error)),
                   .why = "every file of a data folder is read",
                   .fix = error == EACCES ? fmt::format("chmod a+r {}", file.string())
                                          : "correct the path in the data section"});
}

}  // namespace

Hdf5Lock::Hdf5Lock() : guard_(hdf5_mutex()) {
  H5Eget_auto2(H5E_DEFAULT, &print_, &print_data_);
  H5Eset_auto2(H5E_DEFAULT, nullptr, nullptr);
}

Hdf5Lock::~Hdf5Lock() { H5Eset_auto2(H5E_DEFAULT, print_, print_data_); }

std::string hdf5_cause() {
  std::string text;
  H5Ewalk2(H5E_DEFAULT, H5E_WALK_UPWARD, keep_message, &text);
  return text.empty() ? "unknown error" : text;
}

Hdf5Id hdf5_open(const std::filesystem::path& file) {
  check_readable(file);
  const Hdf5Id access(H5Pcreate(H5P_FILE_ACCESS), H5Pclose);
  H5Pset_file_locking(access, 0,
                      1);  // parallel file systems often refuse locks, and a reader needs none
  Hdf5Id id(H5Fopen(file.c_str(), H5F_ACC_RDONLY, access), H5Fclose);
  if (id) return id;
  refuse_foreign(file);
  const std::string cause = hdf5_cause();
  const bool truncated = cause.find("truncated") != std::string::npos;
  std::error_code ignored;
  throw DataError(
      {.what = fmt::format("{} is {} ({} bytes): {}", file.string(),
                           truncated ? "a truncated HDF5 file" : "not a readable HDF5 file",
                           std::filesystem::file_size(file, ignored), cause),
       .why = "an interrupted download or copy leaves a file that is shorter than its header says",
       .fix = fmt::format("fetch the file again, then run: braid data check {}", file.string())});
}

std::vector<std::string> hdf5_datasets(const Hdf5Id& file) {
  std::vector<std::string> names;
  H5Ovisit(file, H5_INDEX_NAME, H5_ITER_INC, keep_dataset, &names);
  return names;
}

}  // namespace braid::data
