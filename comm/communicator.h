// Collectives between the ranks of a job, on a stream.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/collective.h"
#include "kernels/runtime/device.h"
#include "kernels/runtime/stream.h"
#include "kernels/runtime/view.h"

namespace convoy {

struct CommOptions {
  /// The longest that a collective, once it has its turn on the stream, waits for other ranks.
  double timeout_seconds = 300;
  /// Compare every collective between the ranks before it is launched (--debug-comm). Those of the CPU are
  /// compared always; on GPUs, where the host has to wait for it, otherwise only the first ones.
  bool check_always = false;
};

/// One rank's end of a group of ranks. Every rank launches the same collectives in the same order; one thread
/// at a time uses a communicator (abort() apart).
///
/// Collectives on views are enqueued on stream() and return at once; the views lie in device()'s memory and
/// stay allocated and untouched until the stream gets there. To overlap:
///   ready.record(compute); ready.wait(comm.stream());   // StreamEvent: the sum starts after the gradient
///   comm.all_reduce(gradient);
///   done.record(comm.stream()); done.wait(compute);     // and the optimizer after the sum
/// An error of enqueued work reaches its caller later: by check_errors(), and by everything here that waits.
/// After it no collective runs any more, here nor, as far as the others can be told, on them.
///
/// Sums have a fixed order (rank 0 + 1 + 2 …; through hierarchical_communicator.h within hosts first; on GPUs
/// the library's), so every rank and every repeat gets the same bits; f16 and bf16 are added in f32 and
/// rounded once.
class Communicator {
 public:
  virtual ~Communicator() = default;  // starts no collective; without finish() the other ranks see one leave
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const Device& device() const { return device_; }
  /// Collectives launched so far, which is the number of the next one.
  std::uint64_t launched() const { return launched_; }
  virtual std::string name() const = 0;  // "mpi", "nccl"
  /// Not the device's compute stream. On the CPU it has a thread of its own.
  virtual Stream stream() = 0;

  // Sums take f64, f32, f16, bf16 and i32; what only moves takes any type. Sizes may be 0; in and out do not
  // overlap, or the smaller one is this rank's part of the other, in its place.
  void all_reduce(View data);                   // sum over the ranks, in place
  void reduce_scatter(ConstView in, View out);  // in: [n size], out: [n], the sum of every rank's part of me
  void broadcast(View data, int root);          // in place
  void all_gather(ConstView in, View out);      // in: [n], out: [n size], by rank

  // The host waits: for all earlier work on the stream, and for the other ranks.
  void barrier();
  /// Everybody's text by rank, on rank 0; nothing on the others.
  std::vector<std::string> gather(const std::string& mine);
  /// A communicator among the ranks that pass the same color (0 or more), in their order here.
  std::unique_ptr<Communicator> split(int color);
  /// The end, on which all ranks agree: nothing is launched after it. A second call does nothing.
  void finish();

  /// Throws the first error that enqueued work has met so far, as PeerError where another rank is the cause;
  /// each call throws it again. Does not wait.
  virtual void check_errors() = 0;
  /// Ends all that waits, here and, where the transport can tell them, on the other ranks: the work under way
  /// and all later work fails with this reason. From any thread.
  virtual void abort(const std::string& reason) noexcept = 0;

 protected:
  Communicator(int rank, int size, Device device) : rank_(rank), size_(size), device_(std::move(device)) {}

  // Arguments are checked. The size may be 1, counts may be 0: they are collectives as any other.
  virtual void launch_all_reduce(const Collective& collective, View data) = 0;
  virtual void launch_reduce_scatter(const Collective& collective, ConstView in, View out) = 0;
  virtual void launch_broadcast(const Collective& collective, View data) = 0;
  virtual void launch_all_gather(const Collective& collective, ConstView in, View out) = 0;
  virtual void run_barrier(const Collective& collective) = 0;
  virtual std::vector<std::string> run_gather(const Collective& collective, const std::string& mine) = 0;
  virtual std::unique_ptr<Communicator> run_split(const Collective& collective, int color) = 0;
  virtual void run_finish(const Collective& collective) = 0;

 private:
  Collective next(CollectiveOp op, DType dtype = DType::u8, std::int64_t count = 0, int root = 0);

  int rank_;
  int size_;
  Device device_;
  std::uint64_t launched_ = 0;
  bool finished_ = false;
};

}  // namespace convoy
