#include "emulator/runtime/shared_chunks.h"

#include <algorithm>

#include "emulator/counting/formatted.h"
#include "emulator/runtime/block.h"

namespace convoy::emulator {

void SharedChunks::begin_block(unsigned threads, ThreadClocks& clocks) {
  clocks_ = &clocks;
  chunks_.clear();
  fences_.assign(threads, 0);
  time_ = 0;
}

SharedChunks::Chunk& SharedChunks::at(std::uint32_t offset) {
  if (chunks_.empty()) chunks_.resize(kMaxSharedBytes / kBytes);
  return chunks_[offset / kBytes];
}

void SharedChunks::begin_copy(std::uint32_t offset, Where where) {
  Chunk& chunk = at(offset);
  const unsigned thread = running_thread();
  if (chunk.pending > 0)
    BlockRunner::current().fault(
        formatted(
            "an asynchronous copy writes shared memory at {}, to which a copy of thread {} has not landed",
            offset, chunk.writer),
        where);
  for (const auto& [reader, time] : chunk.reads)
    if (!clocks_->has_seen(thread, reader, time))
      BlockRunner::current().fault(
          formatted(
              "an asynchronous copy writes shared memory at {}, which a wgmma.mma_async of warp {} may still "
              "read; no barrier is between the wgmma.wait_group and the copy",
              offset, reader - clocks_->reader(0)),
          where);
  chunk.reads.clear();
  chunk.writer = thread;
  chunk.written = clocks_->now(thread);
  ++chunk.pending;
}

void SharedChunks::landed(std::uint32_t offset, unsigned thread, Proxy proxy) {
  Chunk& chunk = at(offset);
  if (chunk.pending > 0) --chunk.pending;
  chunk.writer = thread;
  chunk.landed = proxy == Proxy::async ? 0 : ++time_;
}

void SharedChunks::fence_async_proxy() { fences_[running_thread()] = time_; }

void SharedChunks::read(std::uint32_t offset, const ThreadClocks::Clock& issued, ThreadClocks::Time read,
                        Where where) {
  Chunk& chunk = at(offset);
  const BlockRunner& runner = BlockRunner::current();
  const unsigned thread = running_thread();
  if (chunk.pending > 0 || (chunk.writer != thread && chunk.written != 0 &&
                            (issued.empty() || issued[chunk.writer] < chunk.written)))
    runner.fault(
        formatted("wgmma.mma_async reads shared memory at {} to which thread {} copies; the thread has not "
                  "waited at a barrier that the copy completes or that comes after it",
                  offset, chunk.writer),
        where);
  if (chunk.landed > fences_[chunk.writer] && chunk.landed > fences_[thread])
    runner.fault(
        formatted("wgmma.mma_async reads what thread {} has copied without a fence.proxy.async after it",
                  chunk.writer),
        where);
  if (!clocks_->are_active()) return;
  const unsigned reader = clocks_->reader(thread / 32);
  const auto same = std::find_if(chunk.reads.begin(), chunk.reads.end(),
                                 [&](const auto& each) { return each.first == reader; });
  if (same != chunk.reads.end())
    same->second = read;
  else
    chunk.reads.emplace_back(reader, read);
}

}  // namespace convoy::emulator
