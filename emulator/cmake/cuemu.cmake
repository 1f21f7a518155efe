# Functions for projects whose CUDA sources run on the CPU. find_package(cuemu) and add_subdirectory(emulator) define
# them, with the libraries cuemu::runtime and cuemu::count.
# The options of code whose memory accesses are counted and checked, which is linked with cuemu::count: the compiler
# inserts a call before each access, and neither splits the access to a vector nor merges those of neighbors. All
# functions are inlined, since there is no call before an access that passes or stores the result of a function.
file(STRINGS ${CMAKE_CURRENT_LIST_DIR}/../counting/options.txt CUEMU_COUNTING_OPTIONS)

# cuemu_compile(SOURCES file.cu …): compiles sources of this directory with the host compiler as they are. They launch
# kernels by cudaLaunchKernelEx, and have no __shared__ but extern arrays.
function(cuemu_compile)
  cmake_parse_arguments(CUEMU "" "" "SOURCES" ${ARGN})
  # -Wno-unknown-pragmas: only nvcc knows "#pragma unroll".
  # -Wno-maybe-uninitialized: g++ does not see that a value is set and read under the same condition.
  set_source_files_properties(${CUEMU_SOURCES} PROPERTIES LANGUAGE CXX
    COMPILE_OPTIONS "-x;c++;-Wno-unknown-pragmas;-Wno-maybe-uninitialized")
endfunction()

# cuemu_add_executable(name a.cu b.cpp … [COUNT | DEBUG]): a program of ordinary CUDA sources, which cuemu translates. It
# runs by itself. COUNT: with CUEMU_CHECK=1 it reports mistakes (g++, without sanitizers). DEBUG: without optimization.
function(cuemu_add_executable name)
  cmake_parse_arguments(CUEMU "COUNT;DEBUG" "" "" ${ARGN})
  cmake_path(SET root NORMALIZE ${CMAKE_CURRENT_FUNCTION_LIST_DIR}/..)
  file(STRINGS ${root}/counting/options.txt counting_options)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(translator_modules __main__.py names.py source.py translate.py)
  list(TRANSFORM translator_modules PREPEND ${root}/cuemu/ OUTPUT_VARIABLE translator)
  set(sources)
  foreach(source ${CUEMU_UNPARSED_ARGUMENTS})
    if(source MATCHES "\\.cu$")
      cmake_path(GET source STEM stem)
      set(translated ${CMAKE_CURRENT_BINARY_DIR}/${name}.cuemu/${stem}.cpp)
      add_custom_command(OUTPUT ${translated} DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/${source} ${translator} VERBATIM
        COMMAND Python3::Interpreter ${root}/cuemu translate ${CMAKE_CURRENT_SOURCE_DIR}/${source} -o ${translated}
        DEPFILE ${translated}.d COMMENT "Translating ${source}")
      list(APPEND sources ${translated})
    else()
      list(APPEND sources ${source})
    endif()
  endforeach()
  add_executable(${name} ${sources})
  target_compile_features(${name} PRIVATE cxx_std_20)
  target_include_directories(${name} PRIVATE ${root}/program ${root}/.. ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_options(${name} PRIVATE -include ${root}/program/program.h -Wno-unknown-pragmas)
  set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
  if(CUEMU_COUNT)
    target_compile_options(${name} PRIVATE ${counting_options})
    target_link_libraries(${name} PRIVATE "$<LINK_LIBRARY:WHOLE_ARCHIVE,cuemu::count>")
  elseif(CUEMU_DEBUG)
    target_compile_options(${name} PRIVATE -O0 -g)
  endif()
  target_link_libraries(${name} PRIVATE cuemu::runtime)
endfunction()
