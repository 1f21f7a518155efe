// The interface of a CPU transport: how the bytes of collectives are moved between ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/kernels/base/view.h"

namespace convoy::dist {

/// Blocking collectives between processes or threads; CpuCommunicator adds everything else. One thread, the
/// communicator's, makes all calls except abort(), in the same order on every rank.
///
/// Every collective
/// - compares its signature with those of the other ranks (verify_consistency) before it uses their data,
/// - blocks until the deadline at most, without busy-waiting,
/// - compares a checksum of every transfer between two ranks before it uses what it has received (transfer.h),
///   and
/// - throws a PeerError that names the ranks at fault. CpuCommunicator puts the collective's description in
///   front of the message.
/// After an error only abort() and the destructor may be called.
class Transport {
 public:
  /// One collective, which blocks until `deadline` at most.
  struct Call {
    CollectiveSignature collective;  ///< what every rank must call
    Deadline deadline;               ///< when it gives up and names the missing ranks
  };

  /// Without finish(), notifies the other ranks, if possible, that this rank has exited.
  virtual ~Transport() = default;
  Transport() = default;
  Transport(const Transport&) = delete;
  Transport& operator=(const Transport&) = delete;

  /// Returns the name for --comm and messages, such as "shm".
  virtual std::string name() const = 0;
  /// Returns the rank of the caller, from 0 to size() - 1.
  virtual int rank() const = 0;
  /// Returns the number of ranks.
  virtual int size() const = 0;

  /// Prepares the calling thread, which makes all later calls. Called once, before the first collective. Does
  /// not communicate.
  virtual void start() {}
  /// Replaces `data` by its sum over all ranks.
  virtual void all_reduce(const Call& call, View data) = 0;
  /// Writes the sum over all ranks of the caller's part of `in`, which has size() parts, to `out`.
  virtual void reduce_scatter(const Call& call, ConstView in, View out) = 0;
  /// Copies `data` of rank call.collective.root to all ranks.
  virtual void broadcast(const Call& call, View data) = 0;
  /// Writes `in` of all ranks to `out`, in rank order.
  virtual void all_gather(const Call& call, ConstView in, View out) = 0;
  /// Blocks until all ranks have called it.
  virtual void barrier(const Call& call) = 0;
  /// Returns the strings of all ranks, in rank order, on rank 0; an empty vector on the other ranks.
  virtual std::vector<std::string> gather_object(const Call& call, const std::string& local) = 0;
  /// Returns a transport between the ranks with the same `color`, in the order of their ranks here.
  virtual std::unique_ptr<Transport> split(const Call& call, int color) = 0;
  /// Throws PeerError if another rank has died, exited without finish() or aborted. Returns whether another
  /// rank waits in the next collective. Does not block, and sends no message. Not called after finish().
  virtual bool poll_peers() = 0;
  /// Blocks until all ranks have called it. It is the last collective.
  virtual void finish(const Call& call) = 0;
  /// Makes a call in progress, here and if possible on the other ranks, throw a PeerError with `reason` soon.
  /// Thread-safe; may be called repeatedly.
  virtual void abort(const std::string& reason) noexcept = 0;
};

}  // namespace convoy::dist
