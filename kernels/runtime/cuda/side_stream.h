// SideStream: the implementation of DeviceContext::enqueue_on_side_stream() for a GPU.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "convoy/kernels/runtime/cuda/stream.h"
#include "convoy/kernels/runtime/device_context.h"

namespace convoy {

/// A stream of low priority next to a compute stream, with which it shares memory and algorithms. Not
/// thread-safe.
class SideStream {
 public:
  /// Creates the stream. `compute` must outlive it.
  explicit SideStream(CudaStream& compute);

  /// Returns the stream, for its settings.
  CudaStream& stream() { return stream_; }
  /// Implements DeviceContext::enqueue_on_side_stream().
  std::uint64_t enqueue(std::function<void(const Stream&)> work);
  /// Makes the compute stream wait for the work with this number and for earlier work, and releases what they
  /// hold.
  void wait(std::uint64_t number);
  /// Makes another stream wait for all work that the compute stream has not waited for.
  void let_wait(CudaStream& other);
  /// Makes the compute stream wait for all work. If it throws, nothing is pending any more.
  void end();

 private:
  struct Pending {
    std::function<void(const Stream&)> work;  // and the tensors that it holds
    std::shared_ptr<void> scratch;
  };
  CudaEvent& done(std::uint64_t number) { return *done_[number % done_.size()]; }

  CudaStream& compute_;
  CudaStream stream_;
  CudaEvent ready_;
  std::array<std::unique_ptr<CudaEvent>, DeviceContext::kMaxSideWorks + 1> done_;
  std::deque<Pending> pending_;
  std::uint64_t enqueued_ = 0;  // the number of the last work; pending_ has the last ones
};

}  // namespace convoy
