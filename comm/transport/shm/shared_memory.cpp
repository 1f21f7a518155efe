#include "convoy/comm/transport/shm/shared_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "convoy/comm/bootstrap/store/file_lock.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/round_up.h"
#include "convoy/kernels/runtime/memory/host_memory_limit.h"

namespace convoy::dist {

// The delegating constructors let the destructor clean up after an error.
SharedMemory::SharedMemory(std::size_t bytes) : SharedMemory() {
  // With overcommitted memory, a larger allocation would make the kernel kill other processes.
  const std::size_t max_bytes = host_memory_limit() / 2;
  if (bytes > max_bytes)
    fail<DeviceError>(
        "shared memory: found {} bytes, expected at most half of this machine's memory, or of the limit of its control "
        "group ({} bytes)",
        bytes, max_bytes);
  create("convoy");
  commit(0, bytes);
  // No process can make it smaller, which would raise SIGBUS in the processes that have mapped it.
  fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  bytes_ = bytes;
  map(MAP_POPULATE);
}

SharedMemory::SharedMemory(Reserved reserved) : SharedMemory() {
  create("convoy-window");
  fcntl(file_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_SEAL);
  bytes_ = reserved.bytes;
  map(0);
  madvise(data_, bytes_, MADV_DONTDUMP);  // a dump would allocate all pages
}

SharedMemory::SharedMemory(const std::string& address) : SharedMemory() {
  open(address);
  map(MAP_POPULATE);
}

std::unique_ptr<SharedMemory> SharedMemory::open_reserved(const std::string& address) {
  std::unique_ptr<SharedMemory> memory(new SharedMemory);
  memory->open(address);
  memory->bytes_ = 0;
  return memory;
}

SharedMemory::~SharedMemory() {
  if (data_ != nullptr) munmap(data_, bytes_);
  if (file_ >= 0) close(file_);
}

void SharedMemory::create(const char* name) {
  file_ = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file_ < 0) fail<DeviceError>("shared memory: memfd_create: {}", std::strerror(errno));
  struct stat status {};
  fstat(file_, &status);
  address_ = fmt::format("{} {} {}", getpid(), file_, status.st_ino);
}

void SharedMemory::open(const std::string& address) {
  int process = 0, number = 0;
  unsigned long long inode = 0;
  if (std::sscanf(address.c_str(), "%d %d %llu", &process, &number, &inode) != 3)
    fail<PeerError>("shared memory: found '{}', expected an address", address);
  const std::string path = fmt::format("/proc/{}/fd/{}", process, number);
  file_ = ::open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (file_ < 0)
    fail<PeerError>(
        "shared memory: {}: {}; ranks that share memory must have the same host, user and PID namespace",
        path, std::strerror(errno));
  struct stat status {};
  fstat(file_, &status);
  if (status.st_ino != inode)
    fail<PeerError>(
        "shared memory: {} is another file; ranks that share memory must have the same host and PID "
        "namespace",
        path);
  address_ = address;
  bytes_ = static_cast<std::size_t>(status.st_size);
}

void SharedMemory::map(int populate) {
  // Aligned to huge pages, by way of a hint: address space that is free now. An unaligned mapping is only slower.
  const std::size_t with_slack = bytes_ + kHugePage;
  void* hint = mmap(nullptr, with_slack, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (hint != MAP_FAILED) munmap(hint, with_slack);
  hint = hint == MAP_FAILED
             ? nullptr
             : reinterpret_cast<void*>(round_up(reinterpret_cast<std::uintptr_t>(hint), kHugePage));
  void* const mapped = mmap(hint, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED | populate, file_, 0);
  if (mapped == MAP_FAILED)
    fail<DeviceError>("shared memory: cannot map {} bytes: {}", bytes_, std::strerror(errno));
  data_ = static_cast<char*>(mapped);
}

void SharedMemory::commit(std::size_t begin, std::size_t bytes) {
  // Otherwise a lack of memory raises SIGBUS at the first write.
  int error = 0;
  do error = posix_fallocate(file_, static_cast<off_t>(begin), static_cast<off_t>(bytes));
  while (error == EINTR);
  if (error != 0)
    fail<DeviceError>("shared memory: cannot allocate {} bytes: {}", bytes, std::strerror(error));
}

void SharedMemory::use_huge_pages(std::size_t begin, std::size_t bytes) noexcept {
  constexpr int kCollapse =
      25;  // MADV_COLLAPSE of Linux 6.1, which the headers of Debian 12's C library lack
  madvise(data_ + begin, bytes, kCollapse);
}

void SharedMemory::discard(std::size_t begin, std::size_t bytes) noexcept {
  fallocate(file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(begin),
            static_cast<off_t>(bytes));
}

void SharedMemory::map_at_least(std::size_t bytes) {
  if (bytes <= bytes_) return;
  if (data_ != nullptr) munmap(std::exchange(data_, nullptr), bytes_);
  bytes_ = bytes;
  map(0);
}

// Uses locks of the open file description, which every rank has opened separately. The kernel releases them
// however a process exits, and a query has no side effects. (A robust mutex reports a death only once and
// belongs to a thread.)
void SharedMemory::hold(int rank) {
  if (!try_lock(file_, kRankLocks + rank))
    fail<PeerError>("shared memory: rank {} cannot take its lock: {}", rank, std::strerror(errno));
}

bool SharedMemory::is_held(int rank) const { return is_locked(file_, kRankLocks + rank); }

}  // namespace convoy::dist
