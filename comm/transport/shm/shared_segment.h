// A shared memory segment with the buffers and step counters of the ranks of one host.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/comm/transport/shm/futex.h"
#include "convoy/comm/transport/shm/shared_memory.h"
#include "convoy/comm/transport/shm/shm_communicator.h"
#include "convoy/comm/transport/transfer.h"

namespace convoy::dist {

/// The shared memory segment of the ranks of one host. Ranks synchronize with step counters: step()
/// increments this rank's counter, and wait() blocks until the counters of the other ranks have reached it.
/// All ranks execute the same sequence of steps. So one number describes the progress of a rank. A waiting
/// rank spins for a few microseconds, then sleeps. It wakes up periodically to check for dead ranks, reported
/// failures and the deadline.
///
/// One thread per rank makes all calls except fail(), which is thread-safe.
class SharedSegment {
 public:
  /// Number of buffers of each kind: one is filled while the other one is read.
  static constexpr int kBuffers = 2;

  /// Creates the segment on rank 0 and opens it on the other ranks. Collective call. Uses `chunk_bytes` of
  /// rank 0, rounded up. `global_ranks` contains the ranks that error messages use, by rank of this segment;
  /// it is empty if they are the same. Each chunk has `checksums` checksums; 0 means `size`. Throws PeerError
  /// on all ranks if one of them fails.
  SharedSegment(int rank, int size, const TextExchange& exchange, std::size_t chunk_bytes,
                std::vector<int> global_ranks = {}, int checksums = 0);
  /// Number of calls of `exchange` that the constructor makes, unless it throws.
  static constexpr int kExchanges = 2;

  int rank() const { return rank_; }
  int size() const { return size_; }
  std::size_t chunk_bytes() const { return chunk_bytes_; }
  /// Returns the size of one rank's slice of a chunk.
  std::size_t slice_bytes() const { return chunk_bytes_ / static_cast<std::size_t>(size_); }

  /// Returns the buffer of `rank` for chunk `number`: chunk_bytes() bytes.
  char* chunk(int rank, std::int64_t number) const;
  /// Returns the buffer of `rank` for the sum of its slice of chunk `number`: slice_bytes() bytes.
  char* slice(int rank, std::int64_t number) const;
  /// Copies `view` to `place` in this rank's buffer for chunk `number`, and posts its checksum as that of part `part`.
  void store(const ConstView& view, const View& place, std::int64_t number, int part);
  /// Copies part `part` of chunk `number`, which `from` has stored at `place`, to `view`. Throws CorruptionError if it
  /// is not what that rank has stored. `what` is stored, for verify_transfer().
  void load(const char* what, const ConstView& place, const View& view, int from, std::int64_t number,
            int part);
  /// Sums `local` and what the other ranks have stored as part `part` of chunk `number`, at `place_of(rank)`, as
  /// sum_verified() does. If `copy` has memory and `of_sum` is not null, posts the checksum of the sum as that of this rank's part.
  template <class PlaceOf>
  void sum(const ConstView& local, const View& sum, std::int64_t number, int part, PlaceOf&& place_of,
           Checksum* of_sum = nullptr, const View& copy = {}) {
    std::vector<SentPart> parts;
    for (int other = 0; other < size_; ++other)
      parts.push_back(other == rank_
                          ? SentPart{local}
                          : SentPart{place_of(other), global_rank(other), checksum(other, part, number)});
    sum_verified(parts, global_rank(rank_), sum, of_sum, copy);
    if (of_sum != nullptr && copy.data != nullptr) checksum(rank_, part, number) = of_sum->value();
  }

  /// Posts the signature of this rank's next collective, and steps.
  void post(const CollectiveSignature& collective);
  /// Returns the signatures of this collective by rank. All ranks have posted them.
  std::vector<CollectiveSignature> posted();

  /// Increments this rank's step counter. Earlier writes of this rank are visible to ranks that wait for the
  /// step.
  void step();
  /// Blocks until the counters of all ranks are at most `lag` steps behind this rank's counter. Throws
  /// PeerError that names the missing or dead ranks, or carries the reason of a call of fail(). Calls `poll`, unless it is
  /// empty, about 20 times a second; an exception from it ends the wait.
  void wait(const Deadline& deadline, std::uint32_t lag = 0, const std::function<void()>& poll = {});
  /// Does the same as wait(), for one rank and a lag of 0.
  void wait_for(int rank, const Deadline& deadline);
  /// Throws PeerError if a rank has failed, or has died with fewer steps than this rank. Does not block. Call
  /// it periodically while waiting for something else.
  void poll_while_waiting();
  /// Throws PeerError if a rank has failed or died. Returns whether a rank has executed more steps than this
  /// rank. Does not block.
  bool poll_between_collectives();
  /// Makes current and later waits of all ranks throw PeerError with `reason`. Only the first call has an
  /// effect. Thread-safe.
  void fail(const std::string& reason) noexcept;

 private:
  struct Control;
  // Wraps around after 16 steps, so every run executes the code for overflow.
  static constexpr std::uint32_t kFirstStep = 0xfffffff0;
  struct alignas(64) RankBlock {
    FutexWord steps;
    FutexWord sleepers;
    CollectiveSignature posted[2];
  };

  bool has_reached(int rank, std::uint32_t target) const;
  void sleep_until_reached(int rank, std::uint32_t target, const Deadline& deadline,
                           const std::function<void()>& poll = {});
  void throw_failure() const;
  /// Calls check_for_dead_peers() if it is due, and throws the failure of a rank.
  template <class F>
  void poll_peers(F&& matters);
  /// Calls fail() for each dead rank for which `matters` returns true. `matters` is called before, which spares
  /// most system calls, and after the death is detected: a rank that has reached the required step may exit.
  template <class F>
  void check_for_dead_peers(F&& matters);
  std::uint64_t& checksum(int rank, int part, std::int64_t number) const;
  int global_rank(int rank) const { return global_ranks_[static_cast<std::size_t>(rank)]; }
  RankBlock& block(int rank) const;
  /// Returns the size of a block and the checksums behind it.
  std::size_t block_bytes() const;
  Control& control() const;

  int rank_;
  int size_;
  std::size_t chunk_bytes_ = 0;
  std::size_t checksums_;  // of each chunk
  std::vector<int> global_ranks_;
  std::unique_ptr<SharedMemory> memory_;
  std::uint32_t steps_ = kFirstStep;
  std::uint64_t entered_ = 0;                // number of collectives
  Deadline::Clock::time_point next_poll_{};  // for dead ranks
  int turn_ = 0;  // the rank that is checked although this rank does not wait for it
};

}  // namespace convoy::dist
