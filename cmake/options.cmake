option(CONVOY_TESTS "Build the tests" ON)
option(CONVOY_TOOLKIT_TESTS "Build only the tests that need the CUDA Toolkit's libraries and no GPU" OFF)
set(CONVOY_CUDA OFF CACHE STRING "NVIDIA GPUs: OFF, ON (needs the CUDA Toolkit), or emulator (the same sources on the CPU)")
set_property(CACHE CONVOY_CUDA PROPERTY STRINGS OFF ON emulator)
option(CONVOY_STD_THREADS "parallel_for on std::thread instead of OpenMP (ThreadSanitizer)" OFF)
# Warnings are errors with tested compilers only: a new warning of another compiler must not stop a user's build.
set(known_compiler OFF)
if(CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(known_compiler ON)
endif()
option(CONVOY_WERROR "Treat warnings as errors" ${known_compiler})
set(CONVOY_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
if(NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths are relative to the source directory, so that another clone hits the same cache. The sloppiness is what ccache
  # requires to cache sources that use a precompiled header.
  set(CCACHE_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
                      CCACHE_SLOPPINESS=pch_defines,time_macros ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
endif()

# Flags for the code of this project; headers of libraries are included as SYSTEM.
add_library(convoy_flags INTERFACE)
# A header of a library has one name, in this tree, in a build of another project and installed: convoy/engine/….
foreach(library kernels engine comm models datasets)
  file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/convoy)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${library} ${PROJECT_BINARY_DIR}/include/convoy/${library} SYMBOLIC)
endforeach()
file(CREATE_LINK ${CMAKE_CURRENT_LIST_DIR}/package/convoy.h ${PROJECT_BINARY_DIR}/include/convoy/convoy.h SYMBOLIC)
configure_file(${CMAKE_CURRENT_LIST_DIR}/package/version.h.in ${PROJECT_BINARY_DIR}/include/convoy/version.h @ONLY)
target_include_directories(convoy_flags INTERFACE ${PROJECT_BINARY_DIR}/include ${PROJECT_SOURCE_DIR})
set(werror $<$<BOOL:${CONVOY_WERROR}>:-Werror>)
target_compile_options(convoy_flags INTERFACE
  $<$<COMPILE_LANGUAGE:CXX>:-Wall -Wextra -Wpedantic ${werror} -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual
                            -Wno-missing-field-initializers -ffp-contract=off>
  # No -Wpedantic: nvcc's generated host code violates it. --expt-relaxed-constexpr allows std::bit_cast in device code.
  $<$<COMPILE_LANGUAGE:CUDA>:$<$<BOOL:${CONVOY_WERROR}>:--Werror=all-warnings> --expt-relaxed-constexpr
                             -Xcompiler=-Wall,-Wextra$<$<BOOL:${CONVOY_WERROR}>:,-Werror>>)
if(CONVOY_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${CONVOY_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  if(CONVOY_SANITIZE MATCHES address AND CONVOY_SANITIZE MATCHES undefined)
    # AddressSanitizer reports an access through a null or dangling pointer. A second check of each access is a third of
    # the compile time of the kernels.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,object-size,vptr>)
  endif()
  # False positives in instrumented code of the standard library's headers (std::regex, with g++ 12).
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${CONVOY_SANITIZE})
endif()
if(CONVOY_CUDA)
  target_compile_definitions(convoy_flags INTERFACE CONVOY_CUDA)
endif()
if(CONVOY_STD_THREADS)
  target_compile_definitions(convoy_flags INTERFACE CONVOY_STD_THREADS)
endif()
