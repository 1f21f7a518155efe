set(CONVOY_COMPONENTS "engine;comm;cluster;models;datasets;train" CACHE STRING
    "Libraries to build: engine, which includes the kernels, those of comm, cluster, models and datasets that are listed, and train, which needs all but cluster")
set(needs_all OFF)
if(PROJECT_IS_TOP_LEVEL)
  set(needs_all ON)
endif()
option(CONVOY_PROGRAMS "Build the programs and benchmarks; needs all libraries; without cluster, no convoy-launch and convoy-doctor" ${needs_all})
option(CONVOY_TESTS "Build the tests of what is built; needs engine, comm, cluster, models and datasets" ${needs_all})
option(BUILD_SHARED_LIBS "Build shared libraries" OFF)
set(CONVOY_CPU_LEVELS "" CACHE STRING
    "Processors for which kernels are compiled besides the baseline, chosen when a program starts: x86-64-v3;x86-64-v4. Needs shared libraries")
set(native ON)
if(CONVOY_CPU_LEVELS OR CMAKE_CROSSCOMPILING)
  set(native OFF)
endif()
option(CONVOY_NATIVE "Compile CPU kernels for this machine's processor" ${native})
if(CONVOY_CPU_LEVELS AND (CONVOY_NATIVE OR NOT BUILD_SHARED_LIBS))
  message(FATAL_ERROR "CONVOY_CPU_LEVELS=${CONVOY_CPU_LEVELS}: found CONVOY_NATIVE=${CONVOY_NATIVE} and \
BUILD_SHARED_LIBS=${BUILD_SHARED_LIBS}, expected OFF and ON")
endif()
# The processors that every library of this build runs on.
if(CONVOY_NATIVE)
  set(CONVOY_CPU_BASELINE native)
elseif(CMAKE_CXX_FLAGS MATCHES "-march=([^ ]+)")
  set(CONVOY_CPU_BASELINE ${CMAKE_MATCH_1})
else()
  string(REPLACE _ - CONVOY_CPU_BASELINE ${CMAKE_SYSTEM_PROCESSOR})  # x86-64, as compilers write it
endif()
option(CONVOY_TOOLKIT_TESTS "Build only the tests that need the CUDA Toolkit's libraries and no GPU" OFF)
set(CONVOY_CUDA OFF CACHE STRING "NVIDIA GPUs: OFF, ON (needs the CUDA Toolkit), or emulator (the same sources on the CPU)")
set_property(CACHE CONVOY_CUDA PROPERTY STRINGS OFF ON emulator)
# Warnings are errors with tested compilers only: a new warning of another compiler must not stop a user's build.
set(known_compiler OFF)
if(PROJECT_IS_TOP_LEVEL AND CMAKE_CXX_COMPILER_ID STREQUAL GNU AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  set(known_compiler ON)
endif()
option(CONVOY_WERROR "Treat warnings as errors" ${known_compiler})
set(CONVOY_KERNEL_OPTIMIZATION "" CACHE STRING "The optimization of the kernels and of the CUDA emulator, if it is not that of the build type: -O2")
set(CONVOY_SANITIZE "" CACHE STRING "Sanitizers, as -fsanitize takes them: address,undefined or thread")

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
if(PROJECT_IS_TOP_LEVEL AND NOT CMAKE_BUILD_TYPE)
  set(CMAKE_BUILD_TYPE Release CACHE STRING "" FORCE)
endif()

find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  # Paths are relative to the source directory, so that another clone hits the same cache. The sloppiness is what ccache
  # requires to cache sources that use a precompiled header.
  set(CCACHE_LAUNCHER ${CMAKE_COMMAND} -E env CCACHE_BASEDIR=${PROJECT_SOURCE_DIR} CCACHE_NOHASHDIR=1
                      CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_PCH_EXTSUM=1 ${CCACHE_PROGRAM})
  set(CMAKE_C_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CCACHE_LAUNCHER})
endif()

# Flags for the code of this project, and not for projects that use it. Headers of libraries are included as SYSTEM.
include_directories(${PROJECT_SOURCE_DIR})
set(werror $<$<BOOL:${CONVOY_WERROR}>:-Werror>)
set(shadow -Wshadow)
if(CMAKE_UNITY_BUILD)
  set(shadow)
  if(CMAKE_CXX_COMPILER_ID STREQUAL GNU)
    # Sources that are compiled as one see the names of each other, and the compiler takes each of them for a header.
    set(shadow -Wshadow=local -Wno-subobject-linkage)
  endif()
endif()
add_compile_options(
  "$<$<COMPILE_LANGUAGE:CXX>:-Wall;-Wextra;-Wpedantic;${werror};${shadow};-Wnon-virtual-dtor;-Woverloaded-virtual;\
-Wno-missing-field-initializers;-ffp-contract=off>"
  # No -Wpedantic: nvcc's generated host code violates it. --expt-relaxed-constexpr allows std::bit_cast in device code.
  "$<$<COMPILE_LANGUAGE:CUDA>:$<$<BOOL:${CONVOY_WERROR}>:--Werror=all-warnings>;--expt-relaxed-constexpr;\
-Xcompiler=-Wall,-Wextra$<$<BOOL:${CONVOY_WERROR}>:,-Werror>>")
if(CONVOY_SANITIZE)
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fsanitize=${CONVOY_SANITIZE}>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-omit-frame-pointer>
                      $<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize-recover=all>)
  if(CONVOY_SANITIZE MATCHES address AND CONVOY_SANITIZE MATCHES undefined)
    # AddressSanitizer reports an access through a null or dangling pointer, or one that has wrapped around. A second check
    # of each access is a third of the compile time.
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-fno-sanitize=null,object-size,vptr,pointer-overflow>)
  endif()
  # False positives in instrumented code of the standard library's headers (std::regex, with g++ 12).
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-maybe-uninitialized>)
  add_link_options(-fsanitize=${CONVOY_SANITIZE})
endif()

# What every source needs that includes a header of the libraries, in this project and in others. A header has one name
# in this tree, in a build of another project and installed: convoy/engine/….
add_library(convoy_interface INTERFACE)
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/include/convoy)
foreach(directory kernels engine comm models datasets apps bench)
  file(CREATE_LINK ${PROJECT_SOURCE_DIR}/${directory} ${PROJECT_BINARY_DIR}/include/convoy/${directory} SYMBOLIC)
endforeach()
include(${CMAKE_CURRENT_LIST_DIR}/umbrella_header.cmake)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${convoy_umbrella_header})
convoy_umbrella_header(${PROJECT_BINARY_DIR}/include/convoy/convoy.h ${CONVOY_COMPONENTS})
configure_file(${CMAKE_CURRENT_LIST_DIR}/package/version.h.in ${PROJECT_BINARY_DIR}/include/convoy/version.h @ONLY)
target_include_directories(convoy_interface INTERFACE $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                                      $<INSTALL_INTERFACE:include>)
target_compile_features(convoy_interface INTERFACE cxx_std_20)
target_compile_definitions(convoy_interface INTERFACE $<$<BOOL:${CONVOY_CUDA}>:CONVOY_CUDA>)
