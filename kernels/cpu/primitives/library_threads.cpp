#include "convoy/kernels/cpu/primitives/library_threads.h"

#include <cblas.h>
#include <dlfcn.h>

namespace convoy::kernels {
namespace {

using SetThreads = void (*)(int);

/// Returns omp_set_num_threads() of the OpenMP runtime that the libraries have loaded, or null if they have
/// none. The setting belongs to the calling thread.
SetThreads find_openmp() {
  constexpr int kOwnThreads = 1;  // the value of openblas_get_parallel() for a build with POSIX threads
  if (openblas_get_parallel() == kOwnThreads) openblas_set_num_threads(1);
  return reinterpret_cast<SetThreads>(dlsym(RTLD_DEFAULT, "omp_set_num_threads"));
}

}  // namespace

void set_library_threads(int threads) {
  static const SetThreads set_threads = find_openmp();
  if (set_threads != nullptr) set_threads(threads);
}

}  // namespace convoy::kernels
