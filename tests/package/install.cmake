# cmake -DBUILD=… -DPREFIX=… -P install.cmake: installs into an empty directory, so that no program of an earlier build stays.
file(REMOVE_RECURSE ${PREFIX})
execute_process(COMMAND ${CMAKE_COMMAND} --install ${BUILD} --prefix ${PREFIX} COMMAND_ERROR_IS_FATAL ANY)
