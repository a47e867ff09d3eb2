// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/arrays.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/core/units.h"
#include "braid/data/npy.h"
#include "data/field_dataset.h"
#include "data/field_file.h"
#include "data/files.h"
#include "data/foreign.h"
#include "data/time_axis.h"

namespace braid::data {
namespace {

namespace fs = std::filesystem;

void check_frame(const fs::path& file, const ArrayOptions& options, int64_t frames) {
  if (!options.frame || (*options.frame >= 0 && *options.frame < frames)) return;
  throw DataError({.what = fmt::format("frame {} of {}", *options.frame, file.string()),
                   .why = fmt::format("it holds frames 0 to {}", frames - 1),
                   .fix = "choose a frame that is there with --frame"});
}

DataError unknown_dataset(const fs::path& file, const std::string& name,
                          const std::vector<std::string>& known) {
  const std::string guess = nearest(name, known);
  return DataError(
      {.what = fmt::format("{} has no dataset \"{}\"", file.string(), name),
       .why = fmt::format("it has {}", some_of(known)),
       .fix = fmt::format("--dataset {}", guess.empty() && !known.empty() ? known[0] : guess)});
}

// A head may say any shape, and memory is taken before a byte is read.
void check_fits_memory(const fs::path& file, const std::vector<int64_t>& shape) {
  int64_t bytes = 16;  // a value as it is stored, and unpacked
  bool countable = true;
  for (const int64_t size : shape) countable &= !__builtin_mul_overflow(bytes, size, &bytes);
  const int64_t memory = int64_t{::sysconf(_SC_PHYS_PAGES)} * ::sysconf(_SC_PAGE_SIZE);
  if (countable && bytes <= memory) return;
  throw DataError(
      {.what = fmt::format("{} holds an array of [{}]", file.string(), fmt::join(shape, ", ")),
       .why = fmt::format("it does not fit the {} of memory that this machine has",
                          to_text(Bytes{memory})),
       .fix = "read one frame of it with --frame, or give a smaller array"});
}

// Of the whole dataset, or one index of its first dimension.
at::Tensor read_box(const Hdf5Id& dataset, const Packing& packing, const fs::path& file,
                    const ArrayOptions& options) {
  std::vector<int64_t> shape = dims_of(dataset);
  check_frame(file, options, shape.empty() ? 0 : shape[0]);
  std::vector<hsize_t> start(shape.size(), 0), count(shape.begin(), shape.end());
  if (options.frame) {
    start[0] = static_cast<hsize_t>(*options.frame);
    count[0] = 1;
    shape.erase(shape.begin());
  }
  check_fits_memory(file, shape);
  const at::Tensor array = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  const Hdf5Id space(H5Dget_space(dataset), H5Sclose);
  Hdf5Id memory(H5Scopy(space), H5Sclose);
  if (!count.empty()) {
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
    memory =
        Hdf5Id(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr), H5Sclose);
  }
  std::vector<int64_t> raw(static_cast<size_t>(array.numel()));
  if (H5Dread(dataset, packing.memory_type(), memory, space, H5P_DEFAULT, raw.data()) < 0)
    throw DataError(
        {.what = fmt::format("cannot read dataset \"{}\" of {}", options.dataset, file.string()),
         .why = hdf5_cause(),
         .fix = "check the file with: braid data check " + file.string()});
  packing.unpack(raw.data(), array.numel(), array.data_ptr<float>());
  return array;
}

at::Tensor read_hdf5(const fs::path& file, const ArrayOptions& options) {
  const Hdf5Lock lock;
  const Hdf5Id opened = hdf5_open(file);
  const Hdf5Id dataset = find_dataset(opened, options.dataset);
  if (!dataset) throw unknown_dataset(file, options.dataset, hdf5_datasets(opened));
  const std::string owner = fmt::format("dataset {} of {}", options.dataset, file.string());
  check_number_type(dataset, owner);
  check_external(dataset, owner);
  return read_box(dataset, packing_of(dataset, {.file = opened, .owner = owner}), file, options);
}

void write_hdf5(const fs::path& file, const at::Tensor& tensor, const std::string& dataset) {
  const at::Tensor host = tensor.to(at::kCPU, at::kFloat).contiguous();
  const std::vector<hsize_t> sizes(host.sizes().begin(), host.sizes().end());
  const Hdf5Lock lock;
  errno = 0;
  const Hdf5Id created(H5Fcreate(file.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT), H5Fclose);
  if (!created) throw_storage("create", file, errno);
  const Hdf5Id space(H5Screate_simple(static_cast<int>(sizes.size()), sizes.data(), nullptr),
                     H5Sclose);
  const Hdf5Id written(H5Dcreate2(created, dataset.c_str(), H5T_IEEE_F32LE, space, H5P_DEFAULT,
                                  H5P_DEFAULT, H5P_DEFAULT),
                       H5Dclose);
  if (!written ||
      H5Dwrite(written, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, host.data_ptr<float>()) <
          0 ||
      H5Fflush(created, H5F_SCOPE_GLOBAL) < 0)
    throw_storage("write", file, errno);
}

}  // namespace

bool is_field_file(const fs::path& file) {
  return std::ranges::count(field_endings(), file.extension().string()) > 0;
}

at::Tensor read_array(const fs::path& file, ArrayOptions options) {
  if (is_field_file(file)) return read_hdf5(file, options);
  refuse_foreign(file);
  at::Tensor array = read_npy(file).to(at::kFloat);
  if (!options.frame) return array;
  check_frame(file, options, array.dim() > 0 ? array.size(0) : 0);
  return array.select(0, *options.frame).contiguous();
}

bool is_array_name(const fs::path& file) {
  const std::string ending = file.extension().string();
  return ending == ".npy" || ending == ".h5" || ending == ".hdf5";
}

void write_array(const fs::path& file, const at::Tensor& tensor, const std::string& dataset) {
  if (!is_array_name(file))
    throw ConfigError({.what = fmt::format("cannot write an array to {}", file.string()),
                       .why = "the ending of the name is the format: .npy, .h5 or .hdf5",
                       .fix = "choose a name with one of these endings"});
  if (is_field_file(file))
    write_hdf5(file, tensor, dataset);
  else
    write_npy(file, tensor.to(at::kCPU).contiguous());
}

FieldFrame read_frame(const fs::path& file, const FieldNames& names, int64_t frame) {
  const FieldFile opened(file, names);
  const FieldShape& shape = opened.shape();
  check_frame(file, {.frame = frame}, shape.frames);
  FieldFrame read{.values = at::empty({shape.channels, shape.height, shape.width},
                                      at::TensorOptions().dtype(at::kFloat)),
                  .info = opened.info(),
                  .frames = shape.frames};
  read.missing = opened.read(
      {.frame = frame, .channels = shape.channels, .rows = shape.height, .cols = shape.width},
      read.values.data_ptr<float>());
  const TimeAxis& times = opened.times();
  if (static_cast<size_t>(frame) < times.values.size())
    read.time = times.values[static_cast<size_t>(frame)];
  read.time_units = times.units;
  read.calendar = times.calendar;
  return read;
}

}  // namespace braid::data
