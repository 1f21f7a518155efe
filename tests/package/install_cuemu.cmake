# Installs the emulator, which is installed as sources: nothing is compiled.
file(REMOVE_RECURSE ${WORK})
foreach(command "-S;${SOURCE};-B;${WORK}/build;-G;${GENERATOR}" "--install;${WORK}/build;--prefix;${WORK}/prefix")
  execute_process(COMMAND ${CMAKE_COMMAND} ${command} COMMAND_ERROR_IS_FATAL ANY)
endforeach()
execute_process(COMMAND ${WORK}/prefix/bin/cuemu explain CE101 COMMAND_ERROR_IS_FATAL ANY)
