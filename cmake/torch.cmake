# SPDX-License-Identifier: BSD-3-Clause
# Imported targets for the torch wheel. find_package(Torch) would demand the CUDA toolkit.
set(BRAID_TORCH "" CACHE PATH "folder of an installed torch (holds include/ and lib/)")
if(NOT BRAID_TORCH AND DEFINED ENV{BRAID_TORCH})
  set(BRAID_TORCH $ENV{BRAID_TORCH})
endif()
if(NOT BRAID_TORCH)
  set(BRAID_TORCH ${PROJECT_SOURCE_DIR}/.deps/torch/torch)
endif()
if(NOT EXISTS ${BRAID_TORCH}/lib/libtorch_cpu.so)
  message(FATAL_ERROR "no torch at ${BRAID_TORCH}\n"
    "  why: libtorch_cpu.so is not in its lib folder\n"
    "  fix: run tools/setup, or set BRAID_TORCH to the folder of an installed torch 2.11")
endif()
file(STRINGS ${BRAID_TORCH}/version.py torch_version REGEX "^__version__")
if(NOT torch_version MATCHES "2\\.11\\.0")
  message(FATAL_ERROR "torch at ${BRAID_TORCH} has ${torch_version}\n"
    "  why: braid leans on internals of 2.11.0\n  fix: install torch==2.11.0")
endif()

# libtorch_cpu finds cupti and cudart beside itself (its own rpath) unless torch was moved alone.
set(torch_lib ${BRAID_TORCH}/lib)
get_filename_component(torch_site ${BRAID_TORCH} DIRECTORY)
foreach(name torch_cpu c10)
  add_library(${name} SHARED IMPORTED GLOBAL)
  set_target_properties(${name} PROPERTIES IMPORTED_LOCATION ${torch_lib}/lib${name}.so)
endforeach()
add_library(braid_torch INTERFACE)
target_include_directories(braid_torch SYSTEM INTERFACE
  $<BUILD_INTERFACE:${BRAID_TORCH}/include>
  $<BUILD_INTERFACE:${BRAID_TORCH}/include/torch/csrc/api/include>)
target_link_libraries(braid_torch INTERFACE torch_cpu c10)
target_compile_definitions(braid_torch INTERFACE FMT_HEADER_ONLY=1)
set(CMAKE_BUILD_RPATH ${torch_lib} ${torch_site}/nvidia/cu13/lib)
set(CMAKE_INSTALL_RPATH "$ORIGIN" "$ORIGIN/../lib" ${torch_lib} ${torch_site}/nvidia/cu13/lib)
