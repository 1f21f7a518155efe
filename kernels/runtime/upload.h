// Asynchronous copies from the host to a device that overlap with computation.
#pragma once

#include <memory>
#include <span>

#include "convoy/kernels/runtime/device_context.h"
#include "convoy/kernels/runtime/event.h"

namespace convoy {

/// A shared handle to host-to-device copies in flight.
class Upload {
 public:
  /// Makes the compute stream wait for the copies: work that is submitted to it later starts after them. Does
  /// not block the host.
  void wait_on_compute_stream() const { copied_->wait(compute_); }
  /// Returns whether the copies are complete, so that their source memory may change. Does not block.
  bool done() const { return copied_->reached(); }
  /// Blocks the calling thread until the copies are complete.
  void wait() const { copied_->wait(); }

 private:
  friend class Uploader;
  Upload(const Stream& compute, std::shared_ptr<Event::Impl> copied)
      : compute_(compute), copied_(std::move(copied)) {}
  Stream compute_;
  std::shared_ptr<Event::Impl> copied_;  // the end of the copies
};

/// Copies data from the host to a device on a separate stream. Neither an uploader nor its uploads are
/// thread-safe.
class Uploader {
 public:
  /// Creates an uploader for the memory of device `to`.
  explicit Uploader(const DeviceContext& to);
  /// Blocks until all copies are complete.
  ~Uploader();
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  /// The source and destination of one copy.
  struct Copy {
    /// A view in the memory of DeviceContext::host(). Must stay allocated and unchanged until Upload::done().
    ConstView from;
    /// A view in the device's memory. Must stay allocated and unused until Upload::wait_on_compute_stream().
    View to;
  };
  /// Starts the copies and returns their handle. They run after all work submitted to the compute stream so
  /// far, because that work may still use the destination memory. Throws CaptureError during a capture.
  Upload start(std::span<const Copy> copies);

  /// The device-specific implementation.
  struct Impl {
    virtual ~Impl() = default;
    /// Enqueues the copies, and then records `copied`.
    virtual void start(std::span<const Copy> copies, Event::Impl& copied) = 0;
  };

 private:
  DeviceContext device_;
  std::unique_ptr<Impl> impl_;
};

}  // namespace convoy
