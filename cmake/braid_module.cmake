# SPDX-License-Identifier: BSD-3-Clause
# braid_module(name [DEPENDS module...] [LINK target...] [HEAVY] [EXCLUDE file...])
#   One module of the house: all src/<name>/*.cpp as an object library. DEPENDS are the modules it may see; a test of
#   the module links those and no others, so a call against the order does not link. HEAVY precompiles torch's headers.
# braid_test(folder [OF module] [TOGETHER [APART test...]] [LABELS label...] [LINK target...] [SOURCES file...] [EXCEPT test...])
#   All tests/<folder>/*_test.cpp and SOURCES as one program <folder>_test that links the module (by default of the
#   folder's name). TOGETHER: four processes run them all, but for those of APART, which have a process each.
#   EXCEPT: tests that do not run under sanitizers.
function(braid_module name)
  cmake_parse_arguments(arg "HEAVY" "" "DEPENDS;LINK;EXCLUDE" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cpp)
  foreach(file ${arg_EXCLUDE})
    list(REMOVE_ITEM sources ${CMAKE_CURRENT_SOURCE_DIR}/${file})
  endforeach()
  add_library(braid_${name} OBJECT ${sources})
  target_include_directories(braid_${name} PUBLIC ${PROJECT_SOURCE_DIR}/include)
  target_include_directories(braid_${name} PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(braid_${name} PUBLIC braid_torch Threads::Threads PRIVATE ${arg_LINK})

  set(closure ${arg_DEPENDS})
  set(links ${arg_LINK})
  foreach(dependency ${arg_DEPENDS})
    get_target_property(inherited braid_${dependency} BRAID_CLOSURE)
    get_target_property(inherited_links braid_${dependency} BRAID_LINKS)
    list(APPEND closure ${inherited})
    list(APPEND links ${inherited_links})
  endforeach()
  list(REMOVE_DUPLICATES closure)
  list(REMOVE_DUPLICATES links)
  list(REMOVE_ITEM closure "")
  list(REMOVE_ITEM links "")
  set_target_properties(braid_${name} PROPERTIES BRAID_CLOSURE "${closure}" BRAID_LINKS "${links}")
  if(arg_HEAVY AND NOT CMAKE_UNITY_BUILD)
    target_precompile_headers(braid_${name} PRIVATE <torch/nn/module.h> <torch/csrc/autograd/custom_function.h>)
  endif()
endfunction()

# Links the objects of a module and of all it depends on.
function(braid_link target module)
  get_target_property(closure braid_${module} BRAID_CLOSURE)
  get_target_property(links braid_${module} BRAID_LINKS)
  foreach(name ${module} ${closure})
    target_link_libraries(${target} PRIVATE braid_${name})
  endforeach()
  target_link_libraries(${target} PRIVATE ${links})
endfunction()

function(braid_test module)
  cmake_parse_arguments(arg "TOGETHER" "OF" "LINK;LABELS;SOURCES;EXCEPT;APART" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/tests/${module}/*_test.cpp)
  list(APPEND sources ${arg_SOURCES})
  if(NOT sources OR (BRAID_SANITIZE AND full IN_LIST arg_LABELS))
    return()
  endif()
  if(NOT arg_OF)
    set(arg_OF ${module})
  endif()
  if(NOT arg_LABELS)
    set(arg_LABELS cpu)
  endif()
  set(timeout 60)
  set(threads 2)
  if(full IN_LIST arg_LABELS)  # long runs of small models, side by side: one thread each
    set(timeout 600)
    set(threads 1)
  endif()
  add_executable(${module}_test ${sources})
  target_include_directories(${module}_test PRIVATE ${PROJECT_SOURCE_DIR}/tests ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${module}_test PRIVATE GTest::gtest braid_test_main braid_support ${arg_LINK})
  braid_link(${module}_test ${arg_OF})
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)  # an EXPECT_ after an if without braces; strings that g++ 12 thinks unset
    target_compile_options(${module}_test PRIVATE -Wno-dangling-else -Wno-maybe-uninitialized)
    # A third of the time to compile them; what takes long when they run is the library.
    target_compile_options(${module}_test PRIVATE $<$<CONFIG:Release>:-O1>)
  endif()
  target_compile_definitions(${module}_test PRIVATE
    BRAID_SOURCE_DIR="${PROJECT_SOURCE_DIR}" BRAID_BINARY_DIR="${PROJECT_BINARY_DIR}")
  set(environment "OMP_NUM_THREADS=${threads};GOMP_SPINCOUNT=1000")
  if(BRAID_SANITIZE)  # a process for each of a thousand tests would spend its time on starting
    # Tests of lost processes have clocks that a program three times slower does not keep; and a
    # sanitizer keeps freed memory for a while.
    set(clocks "*Process*:*OnMpi*:*OnTwoOfMpi*:*LostRank*:Fault*:Spawn*:Launcher*:Slurm*:Network*:LocalRanks*:*Harness*:Convert.NeedsRoomForOneTensor")
    # Searches and large models would take minutes to run the code of smaller tests again.
    set(large "Explain.TakesTheFirstBranchThatFits:Bounds.AreSound:PublishedMemory.TheTable*:PublishedMemory.EveryRow*:Calibrate.Kernels*:Calibrate.Measured*:Search.FindsWhat*")
    list(JOIN arg_EXCEPT : except)
    add_test(NAME ${module} COMMAND ${module}_test --gtest_brief=1 "--gtest_filter=-${clocks}:${large}:${except}")
    set_tests_properties(${module} PROPERTIES TIMEOUT 1200 LABELS "${arg_LABELS}" ENVIRONMENT "${environment}")
    return()
  endif()
  set(single)
  if(arg_TOGETHER)  # half a second per process would be most of the time of a thousand small tests
    list(JOIN arg_APART : apart)
    math(EXPR together "${timeout} * 5")
    foreach(shard RANGE 1 4)
      math(EXPR index "${shard} - 1")
      add_test(NAME ${module}.${shard} COMMAND ${module}_test "--gtest_filter=-${apart}")
      set_tests_properties(${module}.${shard} PROPERTIES TIMEOUT ${together} LABELS "${arg_LABELS}"
        ENVIRONMENT "${environment};GTEST_TOTAL_SHARDS=4;GTEST_SHARD_INDEX=${index}")
    endforeach()
    if(NOT arg_APART)
      return()
    endif()
    set(single TEST_FILTER "${apart}")
  endif()
  gtest_discover_tests(${module}_test ${single} DISCOVERY_MODE PRE_TEST DISCOVERY_TIMEOUT 60
    PROPERTIES TIMEOUT ${timeout} LABELS "${arg_LABELS}" ENVIRONMENT "${environment}")
endfunction()
