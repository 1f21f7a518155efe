// The number of threads of oneDNN and OpenBLAS.
#pragma once

namespace convoy::kernels {

/// Makes oneDNN and OpenBLAS use `threads` threads when the calling thread calls them. Call it before each of
/// their functions. Kernels split their work into pieces themselves and set 1: the threads of OpenMP, on
/// which the libraries run, wait for each other without regard to other processes. Has no effect on a library
/// that was built for other threads than OpenMP's, except that OpenBLAS then always uses one thread.
void set_library_threads(int threads);

}  // namespace convoy::kernels
