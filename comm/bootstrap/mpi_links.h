// MPI in this process: its lifetime, a lock that serializes calls from several threads, and point-to-point
// messages.
#pragma once

#include <mpi.h>

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "convoy/comm/core/message_links.h"
#include "convoy/comm/core/wait_watch.h"

namespace convoy::dist {

/// Throws PeerError with the name of the MPI function `call` and MPI's error message, unless `result` is
/// MPI_SUCCESS.
void check_mpi(int result, const char* call);

/// Initializes MPI and finalizes it. All messages of all groups use MPI_COMM_WORLD and differ by tag:
/// creating an MPI communicator waits for all ranks without a deadline. No other code in the process may use
/// MPI. The constructor and destructor must run on the main thread; all other functions are thread-safe.
class MpiSession {
 public:
  /// Initializes MPI. Throws UsageError if MPI has been initialized before, or does not support several
  /// threads.
  MpiSession();
  /// Finalizes MPI if allow_finalize() was called. MPI_Finalize waits for all ranks without a deadline, so it
  /// is called only when all ranks are known to shut down. Otherwise the process exits without it, and mpirun
  /// reports the job as failed.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// Returns the name and version of the library: "Open MPI v4.1.4".
  static std::string library();

  /// Returns a lock that the caller must hold during every MPI call. All MPI libraries support
  /// MPI_THREAD_SERIALIZED, and the calls are short.
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }

  /// Tags that all ranks know in advance: of the rendezvous and of the shutdown.
  static constexpr int kRendezvousTag = 0;
  static constexpr int kShutdownTag = 2;
  /// Reserves two consecutive tags that no other call on any rank returns, and returns the first one. The
  /// first tag is for messages, the second one for abort reasons. Throws PeerError when the tags are
  /// exhausted.
  int new_tags();

  /// Records that messages may be pending that never complete.
  void mark_broken() { broken_ = true; }
  bool is_broken() const { return broken_; }
  /// Ends the use of MPI in this process, for the given reason. A message that has been matched cannot be
  /// cancelled, and MPI may access its memory during any later call, whatever the message of that call. The
  /// caller holds the lock.
  void abandon(const std::string& reason);
  /// Throws PeerError with the reason of abandon(), if it was called. The caller holds the lock.
  void check_usable() const;
  bool is_abandoned() const { return abandoned_; }
  /// Allows the destructor to finalize MPI. Call it after all ranks have reached the shutdown.
  void allow_finalize() { may_finalize_ = true; }

 private:
  std::mutex mutex_;
  int rank_ = 0;
  int size_ = 1;
  int last_tag_ = 0;
  std::atomic<int> pairs_ = 2;  // number of reserved pairs of tags, including the two constants above
  std::atomic<bool> broken_ = false;
  std::atomic<bool> abandoned_ = false;
  std::string abandon_reason_;
  bool may_finalize_ = false;
};

/// MessageLinks between some ranks of MPI_COMM_WORLD, with their own tags. Waits poll MPI with pauses, so
/// they can end at a deadline or when another rank aborts.
class MpiLinks final : public MessageLinks {
 public:
  /// `world_ranks` contains the MPI_COMM_WORLD ranks of the group, by rank of the group. `tag` is from
  /// new_tags() of the group's first rank.
  MpiLinks(std::shared_ptr<MpiSession> session, std::vector<int> world_ranks, int tag);
  ~MpiLinks() override;

  std::string name() const override { return "mpi"; }
  int rank() const override { return rank_; }
  int size() const override { return static_cast<int>(world_ranks_.size()); }
  const std::vector<int>& world_ranks() const { return world_ranks_; }

  void send(int to, std::span<const std::byte> bytes) override;
  void receive(int from, std::span<std::byte> bytes) override;
  void wait(const Deadline& deadline) override;
  bool poll_peers() override;
  std::string new_group_name() override { return std::to_string(session_->new_tags()); }
  std::unique_ptr<MessageLinks> make_group(std::span<const int> members, const std::string& name,
                                           const Deadline& deadline) override;
  void leave(const Deadline&) override {}  // MPI_Finalize completes pending messages
  void abort(const std::string& reason) noexcept override;

 private:
  /// What a rank that waits tells its peers. No reason begins with the zero.
  struct WaitMessage {
    std::uint64_t zero = 0;
    std::uint64_t round;
  };

  int world_rank(int rank) const { return world_ranks_[static_cast<std::size_t>(rank)]; }
  void wait_for_requests(const Deadline& deadline);
  /// Returns the ranks of the messages that have not completed, in ascending order.
  std::vector<int> pending_ranks() const;
  /// Tells its peers that this rank waits, by a WaitMessage in place of a reason. The caller holds the session's lock.
  void tell_wait();
  /// Receives the reasons of ranks that have aborted, and the news that others wait. Throws PeerError if this rank has
  /// aborted. The caller holds the session's lock.
  void receive_reasons();
  /// Throws PeerError if this rank has aborted, or a rank with a pending message to or from this one. Other
  /// aborted ranks are ignored: this rank has already received everything it needs from them. The caller
  /// holds the session's lock.
  void throw_if_aborted();
  /// Cancels pending messages, because the caller may free their memory. Does not wait for MPI: a message
  /// that has been matched, such as one from a rank that was stopped in the middle of it, cannot be
  /// cancelled, and MPI_Wait would not return. If such a message is left, the session is abandoned once the
  /// other ranks have been told the reason.
  void cancel_requests() noexcept;
  /// Sends the reason of abort() to all other ranks, and waits a short time for its delivery.
  void send_reason() noexcept;

  std::shared_ptr<MpiSession> session_;
  const std::vector<int> world_ranks_;
  const int tag_;
  int rank_ = 0;
  std::vector<MPI_Request> requests_;
  struct Pending {
    int other;
    bool receives;
  };
  std::vector<Pending> pending_;      // the messages of requests_
  bool is_abandoned_ = false;         // a message could not be cancelled
  std::string reason_;                // of abort(); never modified afterwards, because MPI may still read it
  std::vector<std::string> reasons_;  // of the other ranks' abort(), by rank
  std::vector<bool> peers_;           // by rank, whether messages have been exchanged
  std::deque<WaitMessage>
      told_;  // of rounds in which this rank has told that it waits; MPI may still read them
  WaitWatch watch_;
};

}  // namespace convoy::dist
