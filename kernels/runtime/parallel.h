// parallel_for, which all CPU kernels use for multi-threading. Uses OpenMP, or std::thread if
// CONVOY_STD_THREADS is defined. The tsan preset defines it, because ThreadSanitizer does not understand the
// barriers of libgomp. Several threads may call both functions at once, each with a stream of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#if defined(CONVOY_STD_THREADS)
#include <thread>
#include <vector>
#else
#include <omp.h>
#endif

#include "convoy/kernels/runtime/stream.h"

namespace convoy {

/// Splits [0, n) into at most stream.threads() contiguous pieces of at least `grain` items, or into a single
/// piece if n < grain. Calls f(begin, end) for each piece in parallel and blocks until all calls have
/// returned. f must not throw. The pieces depend only on n, grain and the number of threads.
template <class F>
void parallel_for(const CpuStream& stream, std::int64_t n, std::int64_t grain, F&& f) {
  if (n <= 0) return;
  const std::int64_t max_pieces = n / std::max<std::int64_t>(grain, 1);
  const int pieces = static_cast<int>(std::min<std::int64_t>(max_pieces, stream.threads()));
  if (pieces <= 1) {
    f(std::int64_t{0}, n);
    return;
  }
  const auto piece = [&](int i) { f(n * i / pieces, n * (i + 1) / pieces); };
#if defined(CONVOY_STD_THREADS)
  std::vector<std::thread> threads;
  for (int i = 1; i < pieces; ++i) threads.emplace_back(piece, i);
  piece(0);
  for (std::thread& thread : threads) thread.join();
#else
#pragma omp parallel for num_threads(pieces) schedule(static, 1)
  for (int i = 0; i < pieces; ++i) piece(i);
#endif
}

/// Sets the number of threads for oneDNN and OpenBLAS. Call it before each of their functions: both use the
/// OpenMP setting of the calling thread, which another stream may have changed.
inline void set_library_threads([[maybe_unused]] const CpuStream& stream) {
#if !defined(CONVOY_STD_THREADS)
  omp_set_num_threads(stream.threads());
#endif
}

}  // namespace convoy
