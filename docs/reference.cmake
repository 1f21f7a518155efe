# cmake -DDOXYGEN=… -DPYTHON=… -DBUILD=… -DVERSION=… -DWARN_AS_ERROR=… -P docs/reference.cmake: renders the reference to
# BUILD/reference/html. With WARN_AS_ERROR=FAIL_ON_WARNINGS, fails on any warning of Doxygen.
cmake_minimum_required(VERSION 3.25)
cmake_path(GET CMAKE_CURRENT_LIST_DIR PARENT_PATH source)

# The headers as consumers name them: convoy/convoy.h, that of convoy::bench, and those that they include, also through
# others.
set(headers convoy/convoy.h convoy/bench/kernels/user_op.h)
set(unread ${headers})
while(unread)
  list(POP_FRONT unread header)
  file(STRINGS ${BUILD}/include/${header} includes REGEX "^#include \"convoy/")
  foreach(include ${includes})
    string(REGEX REPLACE "^#include \"(.*)\".*" "\\1" include ${include})
    if(NOT include IN_LIST headers)
      list(APPEND headers ${include})
      list(APPEND unread ${include})
    endif()
  endforeach()
endwhile()
file(GLOB pages ${source}/docs/*.md)
list(TRANSFORM headers PREPEND ${BUILD}/include/)
list(JOIN pages " " pages)
list(JOIN headers " " headers)

file(REMOVE_RECURSE ${BUILD}/reference)
file(MAKE_DIRECTORY ${BUILD}/reference)
configure_file(${source}/docs/Doxyfile.in ${BUILD}/reference/Doxyfile @ONLY)
execute_process(COMMAND ${DOXYGEN} ${BUILD}/reference/Doxyfile COMMAND_ERROR_IS_FATAL ANY)
