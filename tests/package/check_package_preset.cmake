# Builds the preset `package`, which takes minutes, and checks its Debian package as check_debian_package.cmake does.
# SOURCE, BUILD: the source directory, and a directory for the build. CPACK, DPKG_DEB, PYTHON: programs. WORK: a directory that
# is written.
execute_process(COMMAND ${CMAKE_COMMAND} --preset package -B ${BUILD} WORKING_DIRECTORY ${SOURCE} COMMAND_ERROR_IS_FATAL ANY)
execute_process(COMMAND ${CMAKE_COMMAND} --build ${BUILD} COMMAND_ERROR_IS_FATAL ANY)
include(${CMAKE_CURRENT_LIST_DIR}/check_debian_package.cmake)
execute_process(COMMAND ${PYTHON} -B ${CMAKE_CURRENT_LIST_DIR}/check_cpu_levels.py ${root}/bin/convoy-train COMMAND_ERROR_IS_FATAL ANY)
