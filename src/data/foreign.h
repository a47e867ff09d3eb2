// SPDX-License-Identifier: BSD-3-Clause
// Formats that braid does not read, known by their first bytes. Internal.
#pragma once
#include <filesystem>

namespace braid::data {

// Throws DataError, naming the command that converts it, if `path` is a netCDF-3 or GRIB file or a
// Zarr folder; a folder is one, too, if it holds nothing but those.
void refuse_foreign(const std::filesystem::path& path);

}  // namespace braid::data
