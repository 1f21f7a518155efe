// What asynchronous copies and tensor cores do to shared memory, 16 bytes at a time.
#pragma once

#include <cuda_runtime.h>

#include <cstdint>
#include <utility>
#include <vector>

#include "emulator/checking/thread_clocks.h"

namespace convoy::emulator {

/// The asynchronous copies to a block's shared memory, and the reads by its wgmma. Reports a read of what has
/// not landed, of what no barrier orders before the read, or of what no fence.proxy.async has made visible; and a
/// copy to what wgmma still reads. Whether it finds a mistake does not depend on the order of threads. All
/// functions act for the thread that is running.
class SharedChunks {
 public:
  static constexpr std::uint32_t kBytes = 16;
  /// The proxy of a copy. wgmma reads through the one of asynchronous operations.
  enum class Proxy : std::uint8_t { generic, async };

  void begin_block(unsigned threads, ThreadClocks& clocks);
  /// `offset`, here and below: from the beginning of shared memory.
  void begin_copy(std::uint32_t offset, Where where);
  void landed(std::uint32_t offset, unsigned thread, Proxy proxy);
  void fence_async_proxy();
  /// The tensor cores read for the running thread's warp. `issued`: the times of all threads that this thread had
  /// seen when it started the multiplication. `read`: the time of the read by ThreadClocks::read().
  void read(std::uint32_t offset, const ThreadClocks::Clock& issued, ThreadClocks::Time read, Where where);

 private:
  struct Chunk {
    unsigned writer = 0, pending = 0;                              // copies
    ThreadClocks::Time written = 0;                                // when the writer started its last copy
    std::uint64_t landed = 0;                                      // 0: never, or visible to all proxies
    std::vector<std::pair<unsigned, ThreadClocks::Time>> reads{};  // the last one by each warp's tensor cores
  };
  Chunk& at(std::uint32_t offset);

  ThreadClocks* clocks_ = nullptr;
  std::vector<Chunk> chunks_;          // empty: no copy and no read yet
  std::vector<std::uint64_t> fences_;  // the time of each thread's last fence.proxy.async
  std::uint64_t time_ = 0;
};

}  // namespace convoy::emulator
