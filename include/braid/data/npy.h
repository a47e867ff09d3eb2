// SPDX-License-Identifier: BSD-3-Clause
// NumPy .npy files: read any of bool, i1..i8, u1, f2, f4, f8 in C order (and Fortran order of any
// rank); write what a tensor holds.
#pragma once
#include <filesystem>

#include <ATen/core/Tensor.h>

namespace braid::data {

at::Tensor read_npy(const std::filesystem::path& file);                       // throws DataError
void write_npy(const std::filesystem::path& file, const at::Tensor& tensor);  // throws StorageError

}  // namespace braid::data
