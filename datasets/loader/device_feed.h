// Uploads of batches from the CPU to a GPU.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "convoy/datasets/loader/loader.h"
#include "convoy/kernels/runtime/upload.h"

namespace convoy::data {

/// A queue that uploads batches while the GPU computes. Keeps the host copy of a batch until its upload is
/// complete. Not thread-safe.
class DeviceFeed {
 public:
  /// `max_behind` is the maximum number of received batches whose uploads are incomplete. send() blocks
  /// beyond it, which bounds the host and GPU memory.
  DeviceFeed(const DeviceContext& device, std::size_t max_behind);

  /// Starts the upload of a batch in the memory of device.host(). If the GPU is out of memory, receive()
  /// tries again.
  void send(Batch batch);
  /// Returns the number of batches that were sent and not yet received.
  std::size_t sent() const { return sent_.size(); }
  /// Returns the oldest batch, in GPU memory. The compute stream waits for its upload; the host does not
  /// block. Requires sent() > 0. Throws DeviceError if the GPU is out of memory.
  Batch receive();
  /// Discards all batches that were not received.
  void clear();

 private:
  struct InFlightBatch {
    Batch source;  // on the host
    Batch batch;   // on the GPU; the target of the upload
    std::optional<Upload> upload;
  };

  void begin(InFlightBatch& batch_in_flight);
  void release_sources();

  DeviceContext device_;
  std::size_t max_behind_;
  std::deque<InFlightBatch> sent_;
  std::deque<InFlightBatch> behind_;  // received batches; without the GPU tensors
  Uploader uploader_;                 // last member: completes its copies before their memory is freed
};

}  // namespace convoy::data
