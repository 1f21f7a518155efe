# Fails if PROGRAM, or a library that it loads, needs MPI, libcurl, OpenSSL or libarchive.
execute_process(COMMAND ldd ${PROGRAM} OUTPUT_VARIABLE libraries COMMAND_ERROR_IS_FATAL ANY)
message("${libraries}")
string(REGEX MATCHALL "lib(mpi|curl|crypto|ssl|archive)[^ ]*" found "${libraries}")
if(found OR NOT libraries MATCHES "libc.so")
  message(FATAL_ERROR "${PROGRAM} uses the engine alone; found ${found}, expected no MPI, libcurl, OpenSSL or libarchive")
endif()
