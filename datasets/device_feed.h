// Batches that the CPU made, on their way to a GPU.
#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "datasets/loader.h"
#include "kernels/runtime/upload.h"

namespace convoy {

/// Uploads batches while the GPU computes, and keeps each on the host until its copy is there.
class DeviceFeed {
 public:
  /// most_behind: batches that have been received and whose copies have not run; a host that is further ahead
  /// of the GPU waits for it, so that the memory of both has a bound.
  DeviceFeed(const Device& device, std::size_t most_behind);

  /// Begins the upload of a batch that lies in the memory of device.host(). Where the GPU has no room now,
  /// receive() tries again.
  void send(Batch batch);
  std::size_t sent() const { return sent_.size(); }  // and not received
  /// The first of the batches sent, in the GPU's memory. The compute stream waits for it, the host does not.
  Batch receive();
  /// Forgets what was sent and not received.
  void clear();

 private:
  struct Parcel {
    Batch source;  // on the host
    Batch batch;   // on the GPU, of which upload is
    std::optional<Upload> upload;
  };

  void begin(Parcel& parcel);
  void take_back_sources();

  Device device_;
  std::size_t most_behind_;
  std::deque<Parcel> sent_;
  std::deque<Parcel> behind_;  // received; only their sources and uploads are left
  Uploader uploader_;          // last, so that it ends its copies before what they read and write goes
};

}  // namespace convoy
