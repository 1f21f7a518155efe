# Precompiled headers. Most of a source's compile time is parsing the standard library, fmt and GoogleTest, so each
# build tree parses them once per set of flags: libraries, kernels (which have flags of their own), and tests.
option(CONVOY_PRECOMPILE "Precompile the headers of the standard library, fmt and GoogleTest" ON)
set(convoy_standard_headers
  <algorithm> <array> <atomic> <chrono> <cmath> <condition_variable> <cstdint> <cstring> <filesystem> <fstream>
  <functional> <limits> <map> <memory> <mutex> <numeric> <optional> <random> <set> <span> <sstream> <stdexcept>
  <string> <string_view> <thread> <tuple> <unordered_map> <utility> <variant> <vector>)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
  set(convoy_precompile_options $<$<COMPILE_LANGUAGE:CXX>:-fpch-preprocess>)  # for ccache
endif()

# convoy_precompile_headers(target [HEADER …]): precompiles the standard library, fmt and the headers for a target of this
# directory. ccache compares sources that use them by the file .gch.sum: the compiler writes a .gch with other bytes each
# time, so that no other build tree would find its sources in the cache. Options are part of each compile's command. After
# an update of these headers that keeps their versions, clear the cache (ccache -C).
function(convoy_precompile_headers target)
  target_precompile_headers(${target} PRIVATE ${convoy_standard_headers} <fmt/format.h> ${ARGN})
  file(WRITE ${CMAKE_CURRENT_BINARY_DIR}/CMakeFiles/${target}.dir/cmake_pch.hxx.gch.sum
       "${CMAKE_CXX_COMPILER_ID} ${CMAKE_CXX_COMPILER_VERSION}, fmt ${fmt_VERSION}, GoogleTest ${GTest_VERSION}: "
       "${convoy_standard_headers};${ARGN}\n")
endfunction()

# convoy_precompile(target [OWN]): lets a library or program use the precompiled headers of all libraries. OWN: a set of
# its own, for a library with flags of its own. A source with further flags sets SKIP_PRECOMPILE_HEADERS.
function(convoy_precompile target)
  if(NOT CONVOY_PRECOMPILE)
    return()
  endif()
  get_target_property(type ${target} TYPE)
  if(type STREQUAL EXECUTABLE)  # compiled as the libraries are, with -fPIC instead of -fPIE
    set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)
    target_compile_options(${target} PRIVATE -fPIC)
  endif()
  target_compile_options(${target} PRIVATE ${convoy_precompile_options})
  if(ARGN STREQUAL OWN)
    convoy_precompile_headers(${target})
    return()
  endif()
  if(NOT TARGET convoy_precompiled)
    file(WRITE ${PROJECT_BINARY_DIR}/precompiled/library.cpp "")
    add_library(convoy_precompiled STATIC ${PROJECT_BINARY_DIR}/precompiled/library.cpp)
    target_link_libraries(convoy_precompiled PRIVATE convoy_interface fmt::fmt)
    target_compile_options(convoy_precompiled PRIVATE ${convoy_precompile_options})
    convoy_precompile_headers(convoy_precompiled)
  endif()
  target_precompile_headers(${target} REUSE_FROM convoy_precompiled)
endfunction()

# convoy_test_options(target): how the code of tests is compiled. Without optimisation, and with AddressSanitizer alone
# where the build has UndefinedBehaviorSanitizer too: both would cost most of the build's time and check the tests, not
# what they test.
function(convoy_test_options target)
  target_compile_options(${target} PRIVATE -O0)
  if(CONVOY_SANITIZE MATCHES undefined)
    target_compile_options(${target} PRIVATE -fno-sanitize=undefined)
  endif()
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE OFF)  # as the precompiled header
  if(NOT CONVOY_PRECOMPILE)
    return()
  endif()
  target_compile_options(${target} PRIVATE ${convoy_precompile_options})
  if(NOT TARGET convoy_precompiled_tests)
    file(WRITE ${PROJECT_BINARY_DIR}/precompiled/tests.cpp "")
    add_library(convoy_precompiled_tests STATIC ${PROJECT_BINARY_DIR}/precompiled/tests.cpp)
    target_link_libraries(convoy_precompiled_tests PRIVATE convoy_interface fmt::fmt GTest::gtest GTest::gmock)
    set(CONVOY_PRECOMPILE OFF)
    convoy_test_options(convoy_precompiled_tests)
    target_compile_options(convoy_precompiled_tests PRIVATE ${convoy_precompile_options})
    convoy_precompile_headers(convoy_precompiled_tests <gtest/gtest.h> <gmock/gmock.h>)
  endif()
  target_precompile_headers(${target} REUSE_FROM convoy_precompiled_tests)
endfunction()
