// Memory that one rank allocates for collectives, and that the other ranks of its host access directly.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>

#include "convoy/comm/transport/shm/shared_memory.h"
#include "convoy/kernels/base/view.h"

namespace convoy::dist {

/// A part of the address space of this process whose blocks are in one memory file. Another process that has opened
/// the file finds all blocks in it, also those that are allocated later. Thread-safe. Owned by a std::shared_ptr, of
/// which each block has a share.
class SharedWindow : public std::enable_shared_from_this<SharedWindow> {
 public:
  /// Returns a block of zeros that is aligned to a page. Throws DeviceError if all blocks together would exceed half of
  /// host_memory_limit(), or if the system has no memory left.
  std::shared_ptr<void> allocate(std::size_t bytes);
  /// Returns the offset of `data` in the window, or -1 if it is not in the window.
  std::int64_t offset_of(const ConstView& data) const;
  /// Returns the address for SharedMemory::open_reserved(). There has been a call of allocate().
  std::string address() const;

 private:
  void release(std::size_t begin) noexcept;

  mutable std::mutex mutex_;
  std::unique_ptr<SharedMemory> memory_;       // null before the first allocation
  std::map<std::size_t, std::size_t> blocks_;  // begin -> bytes, whole pages
};

}  // namespace convoy::dist
