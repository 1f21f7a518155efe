# cmake -DWORK=… -P check_umbrella_header.cmake: convoy.h of a build with some components has the headers of these alone.
cmake_minimum_required(VERSION 3.25)
include(${CMAKE_CURRENT_LIST_DIR}/../../cmake/umbrella_header.cmake)

# Of the includes of the header with these components: the number of those with `pattern`.
function(expect_includes components pattern expected)
  convoy_umbrella_header(${WORK}/convoy.h ${components})
  file(STRINGS ${WORK}/convoy.h lines REGEX "^#include \"convoy/${pattern}/")
  list(LENGTH lines count)
  if((expected STREQUAL none AND count GREATER 0) OR (expected STREQUAL some AND count EQUAL 0))
    message(FATAL_ERROR "components ${components}: found ${count} headers of convoy/${pattern}, expected ${expected}")
  endif()
endfunction()

foreach(pattern kernels engine)
  expect_includes("engine" ${pattern} some)
endforeach()
foreach(pattern comm models datasets apps)
  expect_includes("engine" ${pattern} none)
  expect_includes("engine;comm;cluster;models;datasets;train" ${pattern} some)
endforeach()
expect_includes("engine;comm" comm/core some)
expect_includes("engine;comm" comm/cluster none)
expect_includes("engine;comm;cluster" comm/cluster some)
