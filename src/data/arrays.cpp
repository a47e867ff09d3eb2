// SPDX-License-Identifier: BSD-3-Clause
#include "braid/data/arrays.h"

#include <ATen/ops/empty.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cerrno>

#include "braid/core/error.h"
#include "braid/core/fs.h"
#include "braid/data/npy.h"
#include "data/hdf5.h"

namespace braid::data {
namespace {

namespace fs = std::filesystem;

bool is_hdf5(const fs::path& file) {
  const std::string ending = file.extension().string();
  return ending == ".h5" || ending == ".hdf5" || ending == ".nc";
}

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
       .why = fmt::format("it has {}", fmt::join(known, ", ")),
       .fix = fmt::format("--dataset {}", guess.empty() && !known.empty() ? known[0] : guess)});
}

at::Tensor read_hdf5(const fs::path& file, const ArrayOptions& options) {
  const Hdf5Lock lock;
  const Hdf5Id opened = hdf5_open(file);
  const Hdf5Id dataset(H5Dopen2(opened, options.dataset.c_str(), H5P_DEFAULT), H5Dclose);
  if (!dataset) throw unknown_dataset(file, options.dataset, hdf5_datasets(opened));
  const Hdf5Id space(H5Dget_space(dataset), H5Sclose);
  std::vector<hsize_t> sizes(H5Sget_simple_extent_ndims(space));
  H5Sget_simple_extent_dims(space, sizes.data(), nullptr);
  check_frame(file, options, sizes.empty() ? 0 : static_cast<int64_t>(sizes[0]));

  std::vector<hsize_t> start(sizes.size(), 0), count = sizes;
  if (options.frame) {
    start[0] = static_cast<hsize_t>(*options.frame);
    count[0] = 1;
  }
  std::vector<int64_t> shape(count.begin() + (options.frame ? 1 : 0), count.end());
  const at::Tensor array = at::empty(shape, at::TensorOptions().dtype(at::kFloat));
  H5Sselect_hyperslab(space, H5S_SELECT_SET, start.data(), nullptr, count.data(), nullptr);
  const Hdf5Id memory(H5Screate_simple(static_cast<int>(count.size()), count.data(), nullptr),
                      H5Sclose);
  if (H5Dread(dataset, H5T_NATIVE_FLOAT, memory, space, H5P_DEFAULT, array.data_ptr<float>()) < 0)
    throw DataError(
        {.what = fmt::format("cannot read dataset \"{}\" of {}", options.dataset, file.string()),
         .why = hdf5_cause(),
         .fix = "check the file with: braid data check " + file.parent_path().string()});
  return array;
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

at::Tensor read_array(const fs::path& file, ArrayOptions options) {
  if (is_hdf5(file)) return read_hdf5(file, options);
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
  if (is_hdf5(file))
    write_hdf5(file, tensor, dataset);
  else
    write_npy(file, tensor.to(at::kCPU).contiguous());
}

}  // namespace braid::data
