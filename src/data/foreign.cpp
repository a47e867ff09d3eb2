// SPDX-License-Identifier: BSD-3-Clause
#include "data/foreign.h"

#include <fmt/format.h>

#include <array>
#include <fstream>
#include <string>
#include <string_view>

#include "braid/core/error.h"

namespace braid::data {
namespace {

namespace fs = std::filesystem;

struct ForeignFormat {
  std::string_view magic, name, fix;
};

using namespace std::string_view_literals;

constexpr std::array<ForeignFormat, 4> foreign_formats = {
    {{"CDF\x01"sv, "a netCDF-3 file", "nccopy -k nc4 {0} {1}_nc4.nc"},
     {"CDF\x02"sv, "a netCDF-3 file", "nccopy -k nc4 {0} {1}_nc4.nc"},
     {"CDF\x05"sv, "a netCDF-3 file (64-bit data)", "nccopy -k nc4 {0} {1}_nc4.nc"},
     {"GRIB"sv, "a GRIB file",
      "cdo -f nc4 copy {0} {1}.nc, or with xarray and cfgrib: xarray.open_dataset(\"{0}\", "
      "engine=\"cfgrib\").to_netcdf(\"{1}.nc\")"}}};

[[noreturn]] void refuse_format(const fs::path& path, std::string_view name,
                                std::string_view command) {
  const std::string whole = path.string(), bare = fs::path(path).replace_extension().string();
  throw DataError({.what = fmt::format("{} is {}", whole, name),
                   .why = "fields are read from HDF5 and netCDF-4 files",
                   .fix = "convert it: " + fmt::format(fmt::runtime(command), whole, bare)});
}

bool is_zarr(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : {".zarray", ".zgroup", ".zmetadata", "zarr.json"})
    if (fs::exists(folder / name, ignored)) return true;
  return false;
}

void refuse_foreign_file(const fs::path& file) {
  std::array<char, 4> bytes = {};
  std::ifstream in(file, std::ios::binary);
  if (!in.read(bytes.data(), bytes.size())) return;
  for (const ForeignFormat& format : foreign_formats)
    if (std::string_view(bytes.data(), bytes.size()) == format.magic)
      refuse_format(file, format.name, format.fix);
}

void refuse_zarr(const fs::path& folder) {
  if (is_zarr(folder))
    refuse_format(folder, "a Zarr folder",
                  "python3 -c 'import xarray; xarray.open_zarr(\"{0}\").to_netcdf(\"{1}.nc\")'");
}

}  // namespace

void refuse_foreign(const fs::path& path) {
  std::error_code error;
  if (fs::is_regular_file(path, error)) return refuse_foreign_file(path);
  if (!fs::is_directory(path, error)) return;
  refuse_zarr(path);
  for (fs::directory_iterator it(path, error), end; !error && it != end; it.increment(error)) {
    if (it->is_directory(error)) refuse_zarr(it->path());
    if (it->is_regular_file(error)) refuse_foreign_file(it->path());
  }
}

}  // namespace braid::data
