# SPDX-License-Identifier: BSD-3-Clause
# Third-party libraries, all from the system's packages (tools/packages.txt).
find_package(Threads REQUIRED)
find_package(yaml-cpp REQUIRED)
find_package(CLI11 REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(PNG REQUIRED)
find_package(ZLIB REQUIRED)
find_path(HDF5_INCLUDE hdf5.h PATH_SUFFIXES hdf5/serial REQUIRED)
find_library(HDF5_LIBRARY NAMES hdf5_serial hdf5 PATH_SUFFIXES hdf5/serial REQUIRED)
find_path(XXHASH_INCLUDE xxhash.h REQUIRED)

add_library(braid_hdf5 INTERFACE)
target_include_directories(braid_hdf5 SYSTEM INTERFACE ${HDF5_INCLUDE})
target_link_libraries(braid_hdf5 INTERFACE ${HDF5_LIBRARY})
