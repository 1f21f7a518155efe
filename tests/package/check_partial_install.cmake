# cmake -DBUILD=… -DWORK=… -P check_partial_install.cmake: the check of `cmake --install` names what a build lacks. It reads
# the paths of a build directory that does not exist.
file(READ ${BUILD}/package/check_complete.cmake check)
string(REPLACE ${BUILD} ${WORK}/absent check "${check}")
file(WRITE ${WORK}/check.cmake "${check}")
execute_process(COMMAND ${CMAKE_COMMAND} -P ${WORK}/check.cmake RESULT_VARIABLE result ERROR_VARIABLE text)
string(REGEX REPLACE "[ \n]+" " " text "${text}")  # CMake breaks lines
foreach(part "This build is not complete, so nothing was installed" "${WORK}/absent/[^ ]*convoy_kernels"
             "Build all first: cmake --build ${WORK}/absent")
  if(result EQUAL 0 OR NOT text MATCHES "${part}")
    message(FATAL_ERROR "found (result ${result}):\n${text}\nexpected: ${part}")
  endif()
endforeach()
