// The parallel loops of all CPU kernels. They run on the threads of a stream. Several threads may call them
// at once, each with a stream of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "convoy/kernels/runtime/stream.h"
#include "convoy/kernels/runtime/thread_pool.h"

namespace convoy {

/// More pieces than threads let the other threads help one that is slow or suspended.
inline constexpr std::int64_t kPiecesPerThread = 4;

/// Splits [0, n) into at most kPiecesPerThread stream.threads() contiguous pieces of at least `grain` items,
/// or into a single piece if n < grain or if the stream has one thread. Calls f(begin, end) for each piece in
/// parallel and blocks until all calls have returned. f must not throw. The pieces depend only on n, grain
/// and the number of threads. A loop inside of f runs on the thread of f.
template <class F>
void parallel_for(const CpuStream& stream, std::int64_t n, std::int64_t grain, F&& f) {
  if (n <= 0) return;
  const std::int64_t max_pieces = n / std::max<std::int64_t>(grain, 1);
  const auto pieces = static_cast<int>(std::min(max_pieces, kPiecesPerThread * stream.threads()));
  if (pieces <= 1 || stream.threads() == 1) {
    f(std::int64_t{0}, n);
    return;
  }
  stream.pool().run(pieces, [&](int, int piece) { f(n * piece / pieces, n * (piece + 1) / pieces); });
}

/// Calls f(thread, item) for each item in [0, items), where thread is the index of the running thread in
/// [0, stream.threads()). Use it for items of milliseconds or of different lengths. Results must not depend
/// on `thread`, which is for scratch memory. Otherwise like parallel_for().
template <class F>
void parallel_for_each(const CpuStream& stream, std::int64_t items, const F& f) {
  const auto pieces = static_cast<int>(std::min<std::int64_t>(items, ThreadPool::kMaxPieces));
  stream.pool().run(pieces, [&](int thread, int piece) {
    for (std::int64_t item = items * piece / pieces; item < items * (piece + 1) / pieces; ++item)
      f(thread, item);
  });
}

}  // namespace convoy
