# Everything is found, nothing is assumed; what is required says which Debian package brings it.
find_package(Threads REQUIRED)

function(convoy_require name header library package)
  find_path(${name}_INCLUDE_DIR ${header} PATH_SUFFIXES ${ARGN})
  find_library(${name}_LIBRARY ${library})
  if(NOT ${name}_INCLUDE_DIR OR NOT ${name}_LIBRARY)
    message(FATAL_ERROR "${name} was not found (${header}, lib${library}): install ${package}, or run scripts/setup.sh")
  endif()
  add_library(convoy::${name} INTERFACE IMPORTED GLOBAL)
  target_include_directories(convoy::${name} SYSTEM INTERFACE ${${name}_INCLUDE_DIR})
  target_link_libraries(convoy::${name} INTERFACE ${${name}_LIBRARY})
endfunction()

# find_package(dnnl) of Debian's 2.6 demands OpenCL, hence by hand. OpenBLAS likewise has no usable config there.
convoy_require(onednn oneapi/dnnl/dnnl.hpp dnnl libdnnl-dev)
convoy_require(openblas cblas.h openblas libopenblas-openmp-dev
               ${CMAKE_LIBRARY_ARCHITECTURE}/openblas-openmp ${CMAKE_LIBRARY_ARCHITECTURE} openblas)
convoy_require(xxhash xxhash.h xxhash libxxhash-dev)
convoy_require(archive archive.h archive libarchive-dev)
find_package(CURL REQUIRED)
find_package(ZLIB REQUIRED)
find_package(OpenSSL REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(CLI11 REQUIRED)
find_path(STB_INCLUDE_DIR stb/stb_image.h REQUIRED)
add_library(convoy::stb INTERFACE IMPORTED GLOBAL)
target_include_directories(convoy::stb SYSTEM INTERFACE ${STB_INCLUDE_DIR})

if(NOT CONVOY_STD_THREADS)
  find_package(OpenMP REQUIRED COMPONENTS CXX)
  target_link_libraries(convoy_flags INTERFACE OpenMP::OpenMP_CXX)
endif()

if(CONVOY_TESTS)
  find_package(GTest REQUIRED)
endif()
find_package(benchmark QUIET)
find_package(MPI QUIET COMPONENTS C)

if(CONVOY_CUDA)
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)  # CMake 3.25 does not know it for nvcc 12 and 13
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # Ampere, Hopper, and PTX for what comes later
  endif()
  enable_language(CUDA)
  find_package(CUDAToolkit REQUIRED)
  find_path(NCCL_INCLUDE_DIR nccl.h HINTS ${CUDAToolkit_INCLUDE_DIRS})
  find_library(NCCL_LIBRARY nccl HINTS ${CUDAToolkit_LIBRARY_DIR})
endif()
