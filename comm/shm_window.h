// The window of memory that the ranks of a host share: buffers, and how the ranks keep step.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "comm/deadline.h"
#include "comm/futex.h"
#include "comm/shared_memory.h"
#include "comm/shm_communicator.h"

namespace convoy {

/// Ranks keep step by counting: step() counts this rank's, wait() waits until others have counted as far. All
/// ranks count the same steps, so one number says for everybody what is done. A waiting rank spins for a
/// moment, then sleeps; it wakes to look whether a rank has died, or failed, or the deadline has passed.
class ShmWindow {
 public:
  static constexpr int kBuffers = 2;  // of each kind: one is filled while the other is read

  /// Every rank, together. `chunk_bytes` is rank 0's. `names`: by rank, the number by which messages call it,
  /// where the ranks are part of a larger group; else empty.
  ShmWindow(int rank, int size, const TextExchange& exchange, std::size_t chunk_bytes,
            std::vector<int> names = {});
  static constexpr int kExchanges = 2;  // that the constructor takes part in, unless it throws

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  /// Of one rank's share of a chunk.
  std::size_t slice_bytes() const { return chunk_bytes_ / static_cast<std::size_t>(size_); }

  char* chunk(int rank, std::int64_t number) const;  // chunk_bytes
  char* slice(int rank, std::int64_t number) const;  // slice_bytes
  Collective& posted(int rank, std::uint64_t number) const;

  /// Everything that this rank wrote before is there for those who wait for the step.
  void step();
  /// Until all, or one, have counted `back` steps less than this rank. PeerError that says who is missing,
  /// gone, or has failed with what.
  void wait(const Deadline& deadline, std::uint32_t back = 0);
  void wait_for(int rank, const Deadline& deadline);
  /// Throws what wait() would but for the deadline, for those who wait elsewhere and ask again and again. Who
  /// has counted as many steps may be gone.
  void look();
  /// From any thread: everybody's waits end, with the reason that came first.
  void fail(const std::string& reason) noexcept;

 private:
  struct Control;
  // Soon wraps around, so that every run does what long ones must.
  static constexpr std::uint32_t kFirstStep = 0xfffffff0;
  struct alignas(64) RankBlock {
    FutexWord steps;
    FutexWord sleepers;
    Collective posted[2];
  };

  bool has_come(int rank, std::uint32_t target) const;
  void sleep_until_come(int rank, std::uint32_t target, const Deadline& deadline);
  void throw_failure() const;
  /// `matters`: asked after the death is known, since a rank that all are done with may go.
  template <class F>
  void look_for_the_dead(F&& matters);
  int name_of(int rank) const { return names_[static_cast<std::size_t>(rank)]; }
  RankBlock& block(int rank) const;
  Control& control() const;

  int rank_;
  int size_;
  std::size_t chunk_bytes_ = 0;
  std::vector<int> names_;
  std::unique_ptr<SharedMemory> memory_;
  std::uint32_t steps_ = kFirstStep;
  Deadline::Clock::time_point next_look_{};  // for the dead, by look()
};

}  // namespace convoy
