// MPI from its start to its end, and the lock that lets more than one thread of ours use it.
#pragma once

#include <mpi.h>

#include <atomic>
#include <mutex>
#include <string>

namespace convoy {

/// PeerError with MPI's own words where a call failed.
void check_mpi(int result, const char* call);

/// All messages of all groups go through MPI_COMM_WORLD, told apart by their tags: what makes communicators
/// of MPI waits for all ranks, without a deadline. Nothing else in the process uses MPI.
class MpiSession {
 public:
  /// On the main thread. Once a process: MPI does not start again.
  MpiSession();
  /// On the same thread. MPI_Finalize waits for all ranks without a deadline, too: so only where they have
  /// all been heard to come. Otherwise the process just ends, by which mpirun knows that the job has failed.
  ~MpiSession();
  MpiSession(const MpiSession&) = delete;
  MpiSession& operator=(const MpiSession&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  /// "Open MPI v4.1.4, …"
  static std::string library();

  /// To be held for every call: MPI_THREAD_SERIALIZED is what every MPI has, and calls here are short.
  [[nodiscard]] std::unique_lock<std::mutex> lock() { return std::unique_lock(mutex_); }
  /// Of rank 0's tags those that all ranks know without being told: of the meeting, and of the end.
  static constexpr int kMeetingTag = 0;
  static constexpr int kFarewellTag = 2;
  /// Two tags that no other call, here or on another rank, has got: for messages, and the one after for a
  /// reason to give up.
  int new_tags();

  /// Messages may be under way that never end.
  void mark_broken() { broken_ = true; }
  bool is_broken() const { return broken_; }
  /// All ranks are about to end.
  void allow_finalize() { may_finalize_ = true; }

 private:
  std::mutex mutex_;
  int rank_ = 0;
  int size_ = 1;
  int last_tag_ = 0;
  std::atomic<int> pairs_ = 2;  // of tags, handed out; the first two have their use
  std::atomic<bool> broken_ = false;
  bool may_finalize_ = false;
};

}  // namespace convoy
