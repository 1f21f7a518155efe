// The lifetime of MPI in this process, and a lock that serializes calls from several threads.
#pragma once

#include <mpi.h>

#include <atomic>
#include <mutex>
#include <string>

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

}  // namespace convoy::dist
