// The shared memory of a communicator of the emulated NCCL. Its ranks are threads or processes.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace convoy::emulator {

/// The signature of a collective. Ranks whose signatures differ wait for each other forever, as in NCCL.
struct NcclSignature {
  std::int32_t op = 0, type = 0, reduction = 0, root = 0;
  std::uint64_t count = 0;
  std::uint64_t number = 0;  // sequence number of the collective on this communicator

  friend bool operator==(const NcclSignature&, const NcclSignature&) = default;
};

/// The shared state of one rank. Chunks are numbered consecutively across collectives. Chunk c is stored in
/// buffer c % kBuffers until all ranks have taken it.
struct NcclSlot {
  static constexpr std::size_t kBuffers = 2;
  std::atomic<std::uint32_t> is_taken, is_finalized;
  std::atomic<std::int32_t> gpu;
  std::atomic<std::uint64_t> host;           // hash of NCCL_HOSTID or of the host name
  std::atomic<std::uint64_t> posted, taken;  // number of chunks
  NcclSignature signatures[kBuffers];
};

/// A mapping of the anonymous file (memfd_create) that the ranks share. The kernel frees the file with its
/// last rank, however the ranks end.
class NcclRendezvous {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{256} << 10;

  /// Creates a file and writes its identity to `id`. This process keeps the file open until one of its ranks
  /// has seen all ranks join. Returns false if the file cannot be created.
  static bool create(ncclUniqueId& id);

  /// Maps the file and joins as `rank`. Throws Refusal<ncclResult_t> if the id, the rank or the number of
  /// ranks is invalid.
  NcclRendezvous(const ncclUniqueId& id, int rank, int ranks, int gpu);
  ~NcclRendezvous();
  NcclRendezvous(const NcclRendezvous&) = delete;
  NcclRendezvous& operator=(const NcclRendezvous&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  NcclSlot& slot(int rank) const;
  NcclSlot& local() const { return slot(rank_); }
  std::byte* buffer(int rank, std::uint64_t chunk) const;

  /// Returns whether f(slot) is true for every rank.
  template <class F>
  bool all(F&& f) const {
    for (int rank = 0; rank < ranks_; ++rank)
      if (!f(slot(rank))) return false;
    return true;
  }
  /// Returns whether all ranks have joined. If so, closes the file, so no other process can map it.
  bool all_joined();
  /// Returns two ranks of one host that use the same GPU, or {0, 0} if there are none.
  std::pair<int, int> shared_gpu() const;

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t inode_ = 0;
  int rank_, ranks_;
};

}  // namespace convoy::emulator
