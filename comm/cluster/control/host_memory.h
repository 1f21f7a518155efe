// The memory of the control plane that the ranks of one host share, and what it tells about them.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/cluster/control/flight_recorder.h"
#include "convoy/comm/cluster/control/rank_status.h"
#include "convoy/comm/transport/shm/futex.h"
#include "convoy/comm/transport/shm/shared_memory.h"

namespace convoy::dist {

/// A text in shared memory that is set at most once. Truncates long texts.
template <std::size_t Bytes>
class SharedText {
 public:
  /// Sets the text. Returns false, and does nothing, if it is set already. An empty text becomes "-".
  bool set(std::string_view text) noexcept {
    std::uint32_t expected = kUnset;
    if (!state_.compare_exchange_strong(expected, kWriting)) return false;
    if (text.empty()) text = "-";
    text = text.substr(0, Bytes);
    for (std::size_t i = 0; i < text.size(); ++i) text_[i].store(text[i], std::memory_order_relaxed);
    state_.store(kFirstSize + static_cast<std::uint32_t>(text.size()));
    return true;
  }
  /// Makes the text unset again. Only the process that sets it calls this.
  void reset() noexcept { state_.store(kUnset); }
  /// Returns the text; an empty string before it is set.
  std::string get() const {
    const std::uint32_t state = state_.load();
    std::string text;
    for (std::uint32_t i = 0; state > kFirstSize && i < std::min<std::uint32_t>(state - kFirstSize, Bytes);
         ++i)
      text += text_[i].load(std::memory_order_relaxed);
    return text;
  }

 private:
  static constexpr std::uint32_t kUnset = 0, kWriting = 1, kFirstSize = 2;
  std::atomic<std::uint32_t> state_;
  std::array<std::atomic<char>, Bytes> text_;
};

/// The texts that the ranks of a host share: why the job ends, and the directory for the flight recorders.
enum HostText : std::uint8_t { kVerdict, kDumpDirectory };

/// What one rank publishes. Its own threads write it, and all processes of the host read it. All times are
/// steady_nanoseconds(). Zero-filled memory is the state before the rank has joined.
struct alignas(64) RankSlot {
  enum class State : std::uint32_t { absent, running, left };
  static constexpr std::size_t kCommunicators = 4;
  static constexpr std::size_t kWarnings = 8;

  /// The collectives of one communicator.
  struct Collectives {
    std::atomic<std::uint64_t> launched, completed;  // numbers of collectives so far
    /// 1 + the number of the collective that the rank is in; 0: in none.
    std::atomic<std::uint64_t> executing;
    std::atomic<std::int64_t> executing_since;
    SharedText<24> name;  // "gradients"; empty: this entry is unused
  };

  std::atomic<State> state;
  std::atomic<std::int32_t> process;
  /// 0: the process lives, as far as is known; 1: it has died; 2 + n: it was killed by signal n.
  std::atomic<std::int32_t> death;
  std::atomic<std::int64_t> beat;      // time of the last sign of life of the rank's control thread
  std::atomic<std::int64_t> io;        // time at which its process last moved bytes (process_slot())
  std::atomic<std::int64_t> progress;  // time of the last change of phase or completed collective
  std::atomic<std::int64_t> step;
  std::atomic<std::int64_t> phase_since;
  std::atomic<Phase> phase;
  /// Number of calls of JobControl::stop_code(), and the code that this rank has passed to it.
  std::atomic<std::uint64_t> stop_points;
  std::atomic<std::int32_t> stop_code;
  std::atomic<std::int64_t> failed_at;
  std::atomic<std::uint32_t> failed_by_peer;        // 1: the failure is a consequence of that of another rank
  SharedText<2048> failure;                         // empty: none
  SharedText<1024> stack;                           // RankStatus::stack
  std::array<SharedText<4096>, 2> texts;            // those of HostMemory::set() of this rank, by HostText
  std::array<SharedText<512>, kWarnings> warnings;  // the first ones; empty: unused
  std::atomic<std::uint32_t> warnings_taken;        // of which the agent has passed on so many
  std::array<Collectives, kCommunicators> communicators;
  /// RankStatus::pace. Its members change one by one: a reader may see some of the block before.
  std::atomic<std::uint64_t> block;
  std::atomic<double> step_seconds;
  std::array<std::atomic<double>, kStepPhases> own_seconds;
  FlightRing ring;
};

/// What the agent publishes for all ranks of its host.
struct alignas(64) HostSlot {
  /// Incremented, and its waiters woken, whenever the control threads should read the memory.
  FutexWord changes;
  std::atomic<std::uint32_t> stop_requested;  // 1 once any rank of the job has a stop code
  std::atomic<std::uint64_t> stop_point;      // 0: not decided
  std::atomic<std::int32_t> stop_code;        // valid once stop_point is set
  std::atomic<std::int64_t> deadline_floor;   // no collective times out before it
  std::array<std::atomic<std::uint32_t>, 2>
      texts;  // by HostText: 1 + the index of the rank that has it; 0: none
  /// 1 once a rank has begun to write the flight recorders of this host.
  std::atomic<std::uint32_t> is_dumped;
};

/// The mapping of the shared memory in one rank.
class HostMemory {
 public:
  /// Creates the memory on the first rank of this host, and opens it on the others. Collective over the job.
  /// Throws PeerError if the memory cannot be opened.
  explicit HostMemory(Rendezvous& rendezvous);

  /// Sets a text, unless a rank has set it: returns whether it did. If the process dies in this call, another rank
  /// may still set the text. Truncates long texts.
  bool set(HostText which, std::string_view text) const noexcept {
    mine().texts[which].set(text);
    std::uint32_t none = 0;
    return host().texts[which].compare_exchange_strong(none, static_cast<std::uint32_t>(index_) + 1);
  }
  /// Returns a text; an empty string before it is set.
  std::string get(HostText which) const {
    const std::uint32_t of = host().texts[which].load();
    return of == 0 ? "" : slot(static_cast<int>(of) - 1).texts[which].get();
  }

  /// Returns a random name of the job, equal on all ranks.
  const std::string& job() const { return job_; }
  HostSlot& host() const;
  int ranks() const { return static_cast<int>(ranks_.size()); }
  /// Returns the rank in the job of the rank at `index` on this host.
  int rank_at(int index) const { return ranks_[static_cast<std::size_t>(index)]; }
  RankSlot& slot(int index) const;
  /// Returns the position of this rank on the host.
  int index() const { return index_; }
  RankSlot& mine() const { return slot(index_); }
  /// Returns the slot of the first rank in the process of `rank`, which has RankSlot::io for all of them.
  RankSlot& process_slot(const RankSlot& rank) const;
  /// Returns whether the process of the rank at `index` exists: false after it was killed.
  bool is_alive(int index) const { return index == index_ || memory_->is_held(index); }

  /// Returns the present status of each rank of this host, in rank order. `all` are the ranks of the job.
  /// Stores in the memory which processes have died, and of which signal: the kernel knows it only for a
  /// moment.
  std::vector<RankStatus> observe(const std::vector<RankInfo>& all) const;

  /// Wakes all control threads of this host.
  void wake() const noexcept;

 private:
  std::string job_;
  std::vector<int> ranks_;
  int index_;
  std::unique_ptr<SharedMemory> memory_;
};

}  // namespace convoy::dist
