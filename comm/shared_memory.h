// Memory that processes of one host share.
#pragma once

#include <cstddef>
#include <string>

namespace convoy {

/// A file that lies in memory alone and never had a name: nothing is left behind however the processes end,
/// and the size of /dev/shm (64 MB in a container) does not bound it. Others find it through the process that
/// made it.
class SharedMemory {
 public:
  /// Zeroed, and there: no later access fails for want of memory. DeviceError.
  explicit SharedMemory(std::size_t bytes);
  /// What the process that gave this address() made, and still holds open. PeerError where it cannot be had.
  explicit SharedMemory(const std::string& address);
  ~SharedMemory();
  SharedMemory(const SharedMemory&) = delete;
  SharedMemory& operator=(const SharedMemory&) = delete;

  char* data() const { return data_; }
  std::size_t bytes() const { return bytes_; }
  const std::string& address() const { return address_; }
  /// Of ranks, each of which calls hold() with its own number once: held until this object, or its process,
  /// is no more. Asked of others only.
  void hold(int rank);
  bool is_held(int rank) const;

 private:
  void map();
  void close();

  std::string address_;
  int file_ = -1;
  std::size_t bytes_ = 0;
  char* data_ = nullptr;
};

}  // namespace convoy
