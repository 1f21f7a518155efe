#include "convoy/comm/transport/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "convoy/comm/core/file_lock.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/memory/host_memory_limit.h"

namespace convoy::dist {

SharedMemory::SharedMemory(std::size_t bytes) : bytes_(bytes) {
  // With overcommitted memory, a larger allocation would make the kernel kill other processes.
  const std::size_t max_bytes = host_memory_limit() / 2;
  if (bytes > max_bytes)
    fail<DeviceError>(
        "shared memory: found {} bytes, expected at most half of this machine's memory, or of the limit of its control "
        "group ({} bytes)",
        bytes, max_bytes);
  file_ = memfd_create("convoy", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file_ < 0) fail<DeviceError>("shared memory: memfd_create: {}", std::strerror(errno));
  // Commits the memory now. Otherwise a lack of memory raises SIGBUS at the first write.
  const int error = posix_fallocate(file_, 0, static_cast<off_t>(bytes));
  if (error != 0) {
    ::close(file_);
    fail<DeviceError>("shared memory: cannot allocate {} bytes: {}", bytes, std::strerror(error));
  }
  // No process can make it smaller, which would raise SIGBUS in the processes that have mapped it.
  fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  struct stat status {};
  fstat(file_, &status);
  address_ = fmt::format("{} {} {}", getpid(), file_, status.st_ino);
  map();
}

SharedMemory::SharedMemory(const std::string& address) : address_(address) {
  int process = 0, number = 0;
  unsigned long long inode = 0;
  if (std::sscanf(address.c_str(), "%d %d %llu", &process, &number, &inode) != 3)
    fail<PeerError>("shared memory: found '{}', expected an address", address);
  const std::string path = fmt::format("/proc/{}/fd/{}", process, number);
  file_ = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ < 0)
    fail<PeerError>(
        "shared memory: {}: {}; ranks that share memory must have the same host, user and PID namespace",
        path, std::strerror(errno));
  struct stat status {};
  fstat(file_, &status);
  if (status.st_ino != inode) {
    ::close(file_);
    fail<PeerError>(
        "shared memory: {} is another file; ranks that share memory must have the same host and PID "
        "namespace",
        path);
  }
  bytes_ = static_cast<std::size_t>(status.st_size);
  map();
}

SharedMemory::~SharedMemory() {
  munmap(data_, bytes_);
  close();
}

void SharedMemory::map() {
  void* const mapped = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0);
  if (mapped == MAP_FAILED) {
    const int error = errno;
    close();
    fail<DeviceError>("shared memory: cannot map {} bytes: {}", bytes_, std::strerror(error));
  }
  data_ = static_cast<char*>(mapped);
}

// Uses locks of the open file description, which every rank has opened separately. The kernel releases them
// however a process exits, and a query has no side effects. (A robust mutex reports a death only once and
// belongs to a thread.)
void SharedMemory::hold(int rank) {
  if (!try_lock(file_, kRankLocks + rank))
    fail<PeerError>("shared memory: rank {} cannot take its lock: {}", rank, std::strerror(errno));
}

bool SharedMemory::is_held(int rank) const { return is_locked(file_, kRankLocks + rank); }

void SharedMemory::close() {
  if (file_ >= 0) ::close(std::exchange(file_, -1));
}

}  // namespace convoy::dist
