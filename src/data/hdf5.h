// SPDX-License-Identifier: BSD-3-Clause
// The HDF5 C library behind one lock and without its own printing on stderr. Internal to the data
// module.
//
//   Hdf5Lock lock;                               // Debian's serial library is not safe for two
//   threads at once Hdf5Id file(H5Fopen(...), H5Fclose);         // must be gone before the lock is
//   if (!file) complain(hdf5_cause());
#pragma once
#define H5_USE_110_API 1  // the same calls with HDF5 1.10 to 1.14
#include <hdf5.h>

#include <filesystem>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace braid::data {

// Holds the process-wide lock of the library and silences its error printing meanwhile.
class Hdf5Lock {
 public:
  Hdf5Lock();
  ~Hdf5Lock();
  Hdf5Lock(const Hdf5Lock&) = delete;
  Hdf5Lock& operator=(const Hdf5Lock&) = delete;

 private:
  std::lock_guard<std::mutex> guard_;
  H5E_auto2_t print_ = nullptr;
  void* print_data_ = nullptr;
};

// An identifier of the library and the call that closes it.
class Hdf5Id {
 public:
  using Close = herr_t (*)(hid_t);
  Hdf5Id() = default;
  Hdf5Id(hid_t id, Close close) : id_(id), close_(close) {}
  ~Hdf5Id() { reset(); }
  Hdf5Id(Hdf5Id&& other) noexcept : id_(std::exchange(other.id_, -1)), close_(other.close_) {}
  Hdf5Id& operator=(Hdf5Id&& other) noexcept {
    reset();
    id_ = std::exchange(other.id_, -1);
    close_ = other.close_;
    return *this;
  }
  explicit operator bool() const { return id_ >= 0; }
  operator hid_t() const { return id_; }
  herr_t reset() { return id_ >= 0 ? close_(std::exchange(id_, -1)) : 0; }

 private:
  hid_t id_ = -1;
  Close close_ = nullptr;
};

std::string hdf5_cause();  // the innermost message of the library's error stack
Hdf5Id hdf5_open(const std::filesystem::path& file);  // read only, no file locks; throws DataError
std::vector<std::string> hdf5_datasets(const Hdf5Id& file);

}  // namespace braid::data
