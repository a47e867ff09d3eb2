# SPDX-License-Identifier: BSD-3-Clause
# libbraid: all modules but the command line in one shared library, installable for find_package(braid).
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

add_library(braid SHARED)
add_library(braid::braid ALIAS braid)
set(library_modules ${BRAID_MODULES})
list(REMOVE_ITEM library_modules cli)
list(GET library_modules -1 last_module)
braid_link(braid ${last_module})
foreach(module ${library_modules})
  target_link_libraries(braid PRIVATE braid_${module})
endforeach()
target_include_directories(braid PUBLIC
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include> $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
target_link_libraries(braid PUBLIC $<BUILD_INTERFACE:braid_torch>)
set_target_properties(braid PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION 0 LINKER_LANGUAGE CXX)

install(TARGETS braid EXPORT braid-targets)
install(TARGETS braid_command RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY include/braid DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(EXPORT braid-targets NAMESPACE braid:: DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/braid)
configure_package_config_file(cmake/braid-config.cmake.in braid-config.cmake
  INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/braid)
write_basic_package_version_file(braid-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/braid-config.cmake ${PROJECT_BINARY_DIR}/braid-config-version.cmake
  DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/braid)
