// SPDX-License-Identifier: BSD-3-Clause
#include "data/field_writer.h"

#include <array>
#include <cerrno>

#include "braid/core/fs.h"
#include "data/hdf5.h"

namespace braid::data {

struct FieldWriter::Ids {
  Hdf5Id file, dataset;
};

FieldWriter::FieldWriter(std::filesystem::path file, const std::string& dataset, FieldShape shape)
    : file_(std::move(file)),
      part_(file_.string() + ".part"),
      shape_(shape),
      ids_(std::make_unique<Ids>()) {
  if (file_.has_parent_path()) make_dirs(file_.parent_path());
  bool good = false;
  {
    const Hdf5Lock lock;
    const auto h = [](int64_t n) { return static_cast<hsize_t>(n); };
    const std::array<hsize_t, 4> dims = {h(shape.frames), h(shape.channels), h(shape.height),
                                         h(shape.width)};
    const Hdf5Id space(H5Screate_simple(4, dims.data(), nullptr), H5Sclose);
    const Hdf5Id creation(H5Pcreate(H5P_DATASET_CREATE), H5Pclose);
    H5Pset_alloc_time(
        creation,
        H5D_ALLOC_TIME_EARLY);  // gives the data their place in the file, for direct reads
    H5Pset_fill_time(creation, H5D_FILL_TIME_NEVER);
    errno = 0;
    ids_->file =
        Hdf5Id(H5Fcreate(part_.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
    if (ids_->file)
      ids_->dataset = Hdf5Id(H5Dcreate2(ids_->file, dataset.c_str(), H5T_IEEE_F32LE, space,
                                        H5P_DEFAULT, creation, H5P_DEFAULT),
                             H5Dclose);
    good = static_cast<bool>(ids_->dataset);
  }
  if (!good) complain();
}

FieldWriter::~FieldWriter() {
  const Hdf5Lock lock;
  const bool unfinished = static_cast<bool>(ids_->file);
  ids_.reset();
  std::error_code ignored;
  if (unfinished) std::filesystem::remove(part_, ignored);
}

void FieldWriter::write(int64_t first, int64_t count, const float* frames) {
  bool good = false;
  {
    const Hdf5Lock lock;
    const auto h = [](int64_t n) { return static_cast<hsize_t>(n); };
    const std::array<hsize_t, 4> start = {h(first), 0, 0, 0};
    const std::array<hsize_t, 4> size = {h(count), h(shape_.channels), h(shape_.height),
                                         h(shape_.width)};
    const Hdf5Id space(H5Dget_space(ids_->dataset), H5Sclose);
    const Hdf5Id memory(H5Screate_simple(4, size.data(), nullptr), H5Sclose);
    errno = 0;
    good = H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, size.data(),
                               nullptr) >= 0 &&
           H5Dwrite(ids_->dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, frames) >= 0;
  }
  if (!good) complain();
}

void FieldWriter::finish() {
  bool good = false;
  {
    const Hdf5Lock lock;
    errno = 0;
    const bool closed = ids_->dataset.reset() >= 0;
    good = ids_->file.reset() >= 0 && closed;
  }
  if (!good) complain();
  rename_durably(part_, file_);
}

void FieldWriter::complain() {
  const int error = errno;
  {
    const Hdf5Lock lock;
    ids_->dataset.reset();
    ids_->file.reset();
  }
  std::error_code ignored;
  std::filesystem::remove(part_, ignored);
  throw_storage("write", file_, error != 0 ? error : EIO);
}

}  // namespace braid::data
