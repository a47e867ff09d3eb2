# SPDX-License-Identifier: BSD-3-Clause
# Runs PROGRAM in an empty FOLDER, as RANKS processes if that is given.
file(REMOVE_RECURSE ${FOLDER})
file(MAKE_DIRECTORY ${FOLDER})
set(command ${PROGRAM})
if(RANKS)
  set(command ${CMAKE_CURRENT_LIST_DIR}/ranks.sh ${RANKS} ${PROGRAM})
endif()
execute_process(COMMAND ${command} WORKING_DIRECTORY ${FOLDER} RESULT_VARIABLE result)
if(NOT result EQUAL 0)
  message(FATAL_ERROR "${PROGRAM} ended with ${result}")
endif()
