# find_package(cuemu): compiles the libraries cuemu::runtime and cuemu::count from the installed sources with the
# project's compiler, and defines the functions of cuemu.cmake.
get_filename_component(CUEMU_SOURCES ${CMAKE_CURRENT_LIST_DIR}/../../cuemu/emulator ABSOLUTE)
add_subdirectory(${CUEMU_SOURCES} ${CMAKE_BINARY_DIR}/cuemu)
include(${CUEMU_SOURCES}/cmake/cuemu.cmake)
