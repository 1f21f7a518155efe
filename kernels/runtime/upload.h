// Copies from the host to a device ahead of their use, while the device computes.
#pragma once

#include <memory>
#include <span>

#include "kernels/runtime/device.h"

namespace convoy {

/// Copies on their way. A handle: its copies are the same.
class Upload {
 public:
  /// Work that the compute stream is given from now on starts after the copies. Never blocks the host.
  void join() const { group_->join(); }
  /// Whether the copies have run, so that what they read may change.
  bool done() const { return group_->done(); }
  void wait() const { group_->wait(); }  // until done(); blocks the calling thread

  /// What a kind of device makes of it.
  struct Group {
    virtual ~Group() = default;
    virtual void join() = 0;
    virtual bool done() const = 0;
    virtual void wait() const = 0;
  };

 private:
  friend class Uploader;
  explicit Upload(std::shared_ptr<Group> group) : group_(std::move(group)) {}
  std::shared_ptr<Group> group_;
};

/// Gives a device what it will need, on a stream of its own. One thread at a time may use an uploader and its
/// uploads.
class Uploader {
 public:
  explicit Uploader(const Device& to);
  ~Uploader();  // waits for copies under way
  Uploader(const Uploader&) = delete;
  Uploader& operator=(const Uploader&) = delete;

  struct Copy {
    ConstView from;  // in the memory of Device::host() of the device; stays, unchanged, until Upload::done()
    View to;         // in the device's memory; stays, and is nobody else's, until Upload::join()
  };
  /// Begins copies. They run once the compute stream has done what it has been given so far, which may still
  /// work on the memory that they write to.
  Upload start(std::span<const Copy> copies);

  /// What a kind of device makes of it.
  struct Lane {
    virtual ~Lane() = default;
    virtual std::shared_ptr<Upload::Group> start(std::span<const Copy> copies) = 0;
  };

 private:
  Device device_;
  std::unique_ptr<Lane> lane_;
};

}  // namespace convoy
