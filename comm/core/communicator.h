// The interface of a communicator: collectives between the ranks of a job, on a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/core/all_reduce.h"
#include "convoy/comm/core/collective.h"
#include "convoy/comm/core/deadline.h"
#include "convoy/kernels/base/view.h"
#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"
#include "convoy/kernels/runtime/stream.h"

namespace convoy::dist {

/// Options of all communicators.
struct CommOptions {
  /// Timeout of one collective in seconds. It starts when the stream reaches the collective, and on the CPU
  /// again whenever data of the collective arrives or is sent.
  double timeout_seconds = 300;
  /// Compares the signature of every collective before the launch. Communicators on the CPU
  /// always compare. On GPUs the host must wait for the comparison, so by default NCCL communicators compare
  /// only the first collectives of each kind.
  bool check_always = false;
  AllReduceOptions all_reduce = {};  // of communicators by messages: "mpi", "tcp"
  int nccl_ctas = 0;  // maximum number of thread blocks of a collective of NCCL; 0: NCCL's choice
  /// A time before which no collective times out, for this communicator and those that it is split into. May
  /// be null.
  std::shared_ptr<const DeadlineFloor> deadline_floor;
  /// Observes the collectives of this communicator, but not of those that it is split into. May be null.
  std::shared_ptr<CollectiveMonitor> monitor;
};

/// One rank's handle to a group of ranks. Every rank must launch the same collectives in the same order. Not
/// thread-safe, except for abort(), which any thread may call.
///
/// Collectives on views are enqueued on stream() and return at once. The views must point to memory of
/// device(). They must stay allocated and unmodified until the stream has executed the collective. To overlap
/// communication with computation, use an Event:
///   ready.record(compute); ready.wait(comm.stream());   // the all-reduce starts after the gradient
///   comm.all_reduce(gradient);
///   done.record(comm.stream()); done.wait(compute);     // the optimizer starts after the all-reduce
///
/// Errors of enqueued collectives are asynchronous: check_errors() and all blocking functions throw them.
/// After an error no further collective runs on this rank. The transport notifies the other ranks if it can
/// reach them.
///
/// Reductions are deterministic: every rank and every repetition gets the same bits. On the CPU the order is
/// rank 0 + 1 + 2 …, except with the other algorithms of AllReduceOptions; hierarchical_communicator.h first reduces
/// within each host. f16 and bf16 are accumulated in f32 and rounded once. On GPUs NCCL chooses the order and the rounding.
class Communicator {
 public:
  /// Does not communicate. Without finish(), the other ranks observe a failure.
  virtual ~Communicator() = default;
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  /// Returns the position of this rank in the group, from 0.
  int rank() const { return rank_; }
  /// Returns the number of ranks of the group.
  int size() const { return size_; }
  /// Returns the device whose memory collectives read and write.
  Device device() const { return context_.device(); }
  /// Returns the compute stream and the memory of the device.
  const DeviceContext& context() const { return context_; }
  /// Returns the number of collectives launched so far, which is the sequence number of the next one.
  /// Collectives that were captured in a CUDA graph do not count, so it does not matter on which ranks a
  /// capture failed.
  std::uint64_t sequence_number() const { return sequence_number_; }
  /// Returns the name of the backend, such as "mpi" or "nccl".
  virtual std::string name() const = 0;
  /// Returns the communication stream. It is not the device's compute stream. On the CPU it has its own
  /// thread.
  virtual Stream stream() = 0;

  // Reductions accept f64, f32, f16, bf16 and i32; broadcast and all_gather accept any type. Views may be
  // empty. `in` and `out` must not overlap, except that the smaller view may be this rank's chunk of the
  // larger one. All four throw UsageError for invalid arguments, before anything is launched.

  /// Sums `data` over all ranks, in place. Records `done`, unless it is null, on stream() as soon as the sum is
  /// there; a capture has to join what the stream does after that as well. Throws UsageError for u8.
  void all_reduce(View data, Event* done = nullptr);
  /// Sets `out` [n] to the sum over all ranks of this rank's chunk of `in` [n * size()]. Throws UsageError
  /// for u8, and for other sizes or types.
  void reduce_scatter(ConstView in, View out);
  /// Copies `data` of rank `root` to all ranks, in place. Throws UsageError unless `root` is a rank.
  void broadcast(View data, int root);
  /// Sets `out` [n * size()] to the concatenation of all `in` [n], in rank order. Throws UsageError for other
  /// sizes or types.
  void all_gather(ConstView in, View out);

  // The following functions block until the stream has executed all earlier work and the other ranks have
  // called the same function. They throw the first error of enqueued work, or PeerError.

  /// Blocks until all ranks have called barrier().
  void barrier();
  /// Returns the strings of all ranks, in rank order, on rank 0; an empty vector on the other ranks.
  std::vector<std::string> gather_object(const std::string& local);
  /// Returns a communicator of the ranks that pass the same `color`, in their present order. Throws
  /// UsageError for a negative color.
  std::unique_ptr<Communicator> split(int color);
  /// Names the gradient bucket that the next collective moves. All ranks pass the same number, which messages
  /// and the monitor show. Numbers above 32,767 are shown as that.
  void set_bucket(int bucket) { bucket_ = bucket; }
  /// Replaces the observer of later collectives. May be null.
  void set_monitor(std::shared_ptr<CollectiveMonitor> monitor) { monitor_ = std::move(monitor); }
  /// Shuts the communicator down, together with all other ranks. No collective may be launched afterwards. A
  /// second call does nothing.
  void finish();

  /// Throws the first error of enqueued work, if there is one: PeerError if another rank is the cause. Every
  /// call throws it again. Does not block.
  virtual void check_errors() = 0;
  /// Blocks until the stream has executed all launched collectives, and throws the first error.
  void synchronize();
  /// Throws PeerError also if no collective is in flight here, but another rank has died, exited without
  /// finish() or aborted. Returns whether another rank waits in the next collective, as far as the backend
  /// can tell; NCCL cannot. Blocks until earlier work has been executed, but not for other ranks. Sends no
  /// message.
  virtual bool poll_peers();
  /// Replaces CommOptions::timeout_seconds for later collectives. Throws UsageError on GPUs.
  virtual void set_timeout(double seconds);
  /// Makes the current collective and all later ones fail with a PeerError that carries `reason`, here and,
  /// if the transport can reach them, on the other ranks. Thread-safe.
  virtual void abort(const std::string& reason) noexcept = 0;

 protected:
  /// Makes the handle of rank `rank` of `size`.
  Communicator(int rank, int size, DeviceContext context)
      : rank_(rank), size_(size), context_(std::move(context)) {}

  // The backend's implementation. Arguments have been validated. A group of one rank and empty views are
  // valid and launch a collective like any other.
  /// Enqueues the function on views that `collective` names. In all_reduce and broadcast, `in` is `out`.
  virtual void launch(const CollectiveSignature& collective, ConstView in, View out) = 0;
  /// Enqueues what follows a collective and no result needs.
  virtual void after_launch(const CollectiveSignature& /*collective*/) {}
  /// Implements barrier().
  virtual void run_barrier(const CollectiveSignature& collective) = 0;
  /// Implements gather_object().
  virtual std::vector<std::string> run_gather_object(const CollectiveSignature& collective,
                                                     const std::string& local) = 0;
  /// Implements split().
  virtual std::unique_ptr<Communicator> run_split(const CollectiveSignature& collective, int color) = 0;
  /// Implements the first finish().
  virtual void run_finish(const CollectiveSignature& collective) = 0;

  /// Returns whether collectives are being captured in a CUDA graph.
  virtual bool is_capturing() const { return false; }
  /// Returns the observer of collectives; null if there is none.
  const std::shared_ptr<CollectiveMonitor>& monitor() const { return monitor_; }

 private:
  void start(const CollectiveSignature& collective, ConstView in, View out, Event* done = nullptr);
  CollectiveSignature next(CollectiveOp op, DType dtype = DType::u8, std::int64_t count = 0, int root = 0);

  int rank_;
  int size_;
  DeviceContext context_;
  std::uint64_t sequence_number_ = 0;
  std::uint64_t captured_ = 0;  // collectives of the current capture
  std::shared_ptr<CollectiveMonitor> monitor_;
  int bucket_ = -1;  // of the next collective; -1: none
  bool finished_ = false;
};

}  // namespace convoy::dist
