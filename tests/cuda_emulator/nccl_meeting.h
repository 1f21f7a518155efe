// Where the ranks of a communicator of the emulated NCCL meet, be they threads or processes: a file without a
// name, which every rank maps, and which goes with the last of them, however they end.
#pragma once

#include <nccl.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>

namespace convoy::emulator {

/// What a rank says of a collective. Ranks whose words differ wait for each other, for ever, as the real
/// ones.
struct NcclWords {
  std::int32_t op = 0, type = 0, reduction = 0, root = 0;
  std::uint64_t count = 0;
  std::uint64_t number = 0;  // of the collective, on this communicator

  friend bool operator==(const NcclWords&, const NcclWords&) = default;
};

/// A rank's place. Chunks of data are numbered on through all collectives; chunk c lies in buffer
/// c % kBuffers until all ranks have taken it.
struct NcclSeat {
  static constexpr std::size_t kBuffers = 2;
  std::atomic<std::uint32_t> is_taken, is_finalized;
  std::atomic<std::int32_t> gpu;
  std::atomic<std::uint64_t> host;           // NCCL_HOSTID or the host's name, hashed
  std::atomic<std::uint64_t> posted, taken;  // chunks
  NcclWords words[kBuffers];
};

class NcclMeeting {
 public:
  static constexpr std::size_t kChunkBytes = std::size_t{256} << 10;

  /// A new place, which this process keeps open for others until one of its own ranks has met all of them.
  static bool found(ncclUniqueId& id);

  /// Takes the seat. Throws Refusal<ncclResult_t>.
  NcclMeeting(const ncclUniqueId& id, int rank, int ranks, int gpu);
  ~NcclMeeting();
  NcclMeeting(const NcclMeeting&) = delete;
  NcclMeeting& operator=(const NcclMeeting&) = delete;

  int rank() const { return rank_; }
  int ranks() const { return ranks_; }
  NcclSeat& seat(int rank) const;
  NcclSeat& mine() const { return seat(rank_); }
  std::byte* buffer(int rank, std::uint64_t chunk) const;

  /// Whether f(seat) holds of every seat.
  template <class F>
  bool all(F&& f) const {
    for (int rank = 0; rank < ranks_; ++rank)
      if (!f(seat(rank))) return false;
    return true;
  }
  /// Also closes the door.
  bool everyone_came();
  /// Two ranks of one host on one GPU; equal numbers where there are none.
  std::pair<int, int> doubled_gpu() const;

 private:
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
  std::uint64_t inode_ = 0;
  int rank_, ranks_;
};

}  // namespace convoy::emulator
