# SPDX-License-Identifier: BSD-3-Clause
# Flags of every target: warnings, sanitizers, and the fast tools that are there.
add_compile_options(-Wall -Wextra -Wno-unused-parameter)
if(BRAID_WERROR)
  add_compile_options(-Werror)
endif()
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  # g++ 12 sees overlapping copies inside std::string that are none, and counts a designated initialiser's defaults as missing.
  add_compile_options(-Wno-restrict -Wno-missing-field-initializers)
endif()
if(CMAKE_CXX_COMPILER_ID MATCHES Clang)
  add_compile_options(-fclang-abi-compat=17)  # else const_data_ptr<T>() of the g++-built wheel does not link
endif()
if(BRAID_SANITIZE)
  # What the address sanitizer sees as well (null, object-size) or hardly pays (vptr) is a quarter of the time to compile.
  add_compile_options(-fsanitize=${BRAID_SANITIZE} -fno-sanitize=null,object-size,vptr -fno-omit-frame-pointer -g1)
  add_link_options(-fsanitize=${BRAID_SANITIZE})
endif()

find_program(CCACHE ccache)
if(CCACHE AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE})
endif()
find_program(MOLD mold)
if(MOLD)
  # mold 1.10 lets the part that is made read-only begin at thread-local variables, which no segment holds: where they stand at the
  # end of a page, the loader refuses the program ("cannot apply additional memory protection after relocation").
  add_link_options(-fuse-ld=mold LINKER:-z,norelro)
endif()
