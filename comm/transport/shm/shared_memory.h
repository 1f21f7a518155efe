// Memory that the processes of one host share.
#pragma once

#include <cstddef>
#include <string>

namespace convoy::dist {

/// A memory-backed file without a name (memfd_create). The kernel frees it when the last process exits,
/// however that happens. The size of /dev/shm (64 MB in a container) does not limit it. Other processes open
/// it through /proc of the process that created it.
class SharedMemory {
 public:
  /// Creates zero-filled and fully committed memory: later accesses cannot raise SIGBUS. Throws DeviceError
  /// if `bytes` is more than half of host_memory_limit(), or cannot be allocated.
  explicit SharedMemory(std::size_t bytes);
  /// Opens the memory with this address(). The process that created it must still have it open. Throws
  /// PeerError if it cannot be opened, DeviceError if it cannot be mapped.
  explicit SharedMemory(const std::string& address);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& address() const { return address_; }

  /// Takes the lock of `rank`. Each rank calls it once, with its own rank. The lock is held until this object
  /// is destroyed or its process exits. Throws PeerError if the lock cannot be taken.
  void hold(int rank);
  /// Returns whether another process holds the lock of `rank`: false after that process has exited.
  bool is_held(int rank) const;

 private:
  void map();
  void close();

  std::string address_;
  int file_ = -1;
  std::size_t bytes_ = 0;
  char* data_ = nullptr;
};

}  // namespace convoy::dist
