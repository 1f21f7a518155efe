# Finds the libraries that this build uses.
if(CONVOY_CUDA AND NOT CONVOY_CUDA STREQUAL emulator)
  if(NOT CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX})
    find_program(CMAKE_CUDA_COMPILER nvcc HINTS ENV CUDA_HOME PATHS /usr/local/cuda/bin REQUIRED)
  endif()
  if(NOT CMAKE_CUDA_ARCHITECTURES)
    set(CMAKE_CUDA_ARCHITECTURES 80-real 90)  # Ampere, Hopper, and PTX for later GPUs
  endif()
  set(CMAKE_CUDA_RUNTIME_LIBRARY Shared)  # like CUDA::cudart: one runtime per process
  enable_language(CUDA)
  # Set after the compiler test: CMake 3.25 does not know the option of nvcc 12 and 13.
  set(CMAKE_CUDA_STANDARD 20)
  set(CMAKE_CUDA_STANDARD_REQUIRED ON)
  set(CMAKE_CUDA_EXTENSIONS OFF)
  set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION -std=c++20)
endif()
include(package/find_dependencies)
convoy_find_engine_dependencies()
foreach(component comm cluster)
  if(component IN_LIST CONVOY_COMPONENTS)
    cmake_language(CALL convoy_find_${component}_dependencies)
  endif()
endforeach()
if(datasets IN_LIST CONVOY_COMPONENTS)
  convoy_find_datasets_dependencies()
endif()

# Headers alone, which no user of the libraries needs.
find_package(nlohmann_json REQUIRED)
find_path(STB_INCLUDE_DIR stb/stb_image.h REQUIRED)
add_library(convoy::stb INTERFACE IMPORTED GLOBAL)
target_include_directories(convoy::stb SYSTEM INTERFACE ${STB_INCLUDE_DIR})

if(train IN_LIST CONVOY_COMPONENTS)
  find_package(CLI11 REQUIRED)
endif()
if(CONVOY_PROGRAMS)
  find_package(benchmark QUIET)
  # D3, which draws the pages of convoy-report.
  find_file(CONVOY_D3 d3.min.js PATHS /usr/share/nodejs/d3/dist NO_DEFAULT_PATH)
endif()
if(CONVOY_TESTS)
  find_package(GTest REQUIRED)
endif()
