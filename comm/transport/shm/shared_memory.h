// Memory that the processes of one host share.
#pragma once

#include <cstddef>
#include <memory>
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
  /// A file that is empty at first, and for whose parts commit() allocates memory.
  struct Reserved {
    std::size_t bytes;  // address space; no page of it is in a core dump
  };
  /// Creates such a file, or throws DeviceError.
  explicit SharedMemory(Reserved reserved);
  /// Opens such a file with this address(), as the constructor above does. map_at_least() maps its parts.
  static std::unique_ptr<SharedMemory> open_reserved(const std::string& address);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& address() const { return address_; }

  /// Allocates bytes [begin, begin + bytes) of the file, which are zero: later accesses cannot raise SIGBUS. Throws
  /// DeviceError if there is not enough memory.
  void commit(std::size_t begin, std::size_t bytes);
  /// Replaces the pages of a part that is aligned to kHugePage by huge pages, which cause fewer TLB misses. Has no effect
  /// if the system has none, or is older than Linux 6.1.
  void use_huge_pages(std::size_t begin, std::size_t bytes) noexcept;
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;  // of x86-64
  /// Frees whole pages of the file in all processes, which may still access them: they are zero then.
  void discard(std::size_t begin, std::size_t bytes) noexcept;
  /// Maps at least the first `bytes` bytes of the file, which may change data(). Throws DeviceError.
  void map_at_least(std::size_t bytes);

  /// Takes the lock of `rank`. Each rank calls it once, with its own rank. The lock is held until this object
  /// is destroyed or its process exits. Throws PeerError if the lock cannot be taken.
  void hold(int rank);
  /// Returns whether another process holds the lock of `rank`: false after that process has exited.
  bool is_held(int rank) const;

 private:
  SharedMemory() = default;
  /// `name` is shown in /proc.
  void create(const char* name);
  void open(const std::string& address);
  /// Maps the first bytes_ bytes; `populate` is MAP_POPULATE or 0.
  void map(int populate);

  std::string address_;
  int file_ = -1;
  std::size_t bytes_ = 0;
  char* data_ = nullptr;
};

}  // namespace convoy::dist
