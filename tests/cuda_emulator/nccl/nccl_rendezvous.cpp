#include "tests/cuda_emulator/nccl/nccl_rendezvous.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "tests/cuda_emulator/vendor/vendor_state.h"

namespace convoy::emulator {
namespace {

struct Header {
  std::atomic<std::int32_t> ranks;  // set by the first rank
};

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kPage = 4096;
static_assert(sizeof(Header) <= kHeaderBytes && sizeof(NcclSlot) % 8 == 0);

std::size_t slots_bytes(int ranks) {
  return (kHeaderBytes + static_cast<std::size_t>(ranks) * sizeof(NcclSlot) + kPage - 1) / kPage * kPage;
}

std::size_t bytes_for(int ranks) {
  return slots_bytes(ranks) +
         static_cast<std::size_t>(ranks) * NcclSlot::kBuffers * NcclRendezvous::kChunkBytes;
}

/// The files that this process keeps open for ranks that have not joined, by inode. Protected by the driver's
/// lock.
std::map<std::uint64_t, int>& open_files() {
  static std::map<std::uint64_t, int>& all = *new std::map<std::uint64_t, int>;  // never destroyed
  return all;
}

void close_file(std::uint64_t inode) {
  const auto found = open_files().find(inode);
  if (found == open_files().end()) return;
  close(found->second);
  open_files().erase(found);
}

[[noreturn]] void refuse_id(ncclResult_t status, const std::string& why) {
  throw Refusal<ncclResult_t>{status, why};
}

/// Opens the file that `id` identifies.
int open_file(const ncclUniqueId& id, std::uint64_t& inode) {
  int process = 0, number = 0;
  unsigned long long expected = 0;
  if (id.internal[sizeof id.internal - 1] != '\0' ||
      std::sscanf(id.internal, "convoy %d %d %llu", &process, &number, &expected) != 3)
    refuse_id(ncclInvalidArgument, "the unique id was not created by ncclGetUniqueId");
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(number);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0 || status.st_ino != expected) {
    if (file >= 0) close(file);
    refuse_id(ncclSystemError, "the process that created the unique id has exited or closed it");
  }
  inode = expected;
  return file;
}

std::uint64_t host_id() {
  if (const char* const id = std::getenv("NCCL_HOSTID")) return std::hash<std::string>()(id);
  char name[256] = {};
  gethostname(name, sizeof name - 1);
  return std::hash<std::string>()(name);
}

}  // namespace

bool NcclRendezvous::create(ncclUniqueId& id) {
  const int file = memfd_create("convoy-nccl", MFD_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0) return false;
  open_files()[status.st_ino] = file;
  id = {};
  std::snprintf(id.internal, sizeof id.internal, "convoy %d %d %llu", getpid(), file,
                static_cast<unsigned long long>(status.st_ino));
  return true;
}

NcclRendezvous::NcclRendezvous(const ncclUniqueId& id, int rank, int ranks, int gpu)
    : bytes_(bytes_for(ranks)), rank_(rank), ranks_(ranks) {
  const int file = open_file(id, inode_);
  struct stat status {};
  fstat(file, &status);
  // All ranks resize it to the same size, unless their arguments differ. New bytes are zero, a valid initial
  // state.
  const bool has_grown =
      static_cast<std::size_t>(status.st_size) >= bytes_ || ftruncate(file, static_cast<off_t>(bytes_)) == 0;
  void* const mapped =
      has_grown ? mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (mapped == MAP_FAILED) refuse_id(ncclSystemError, "cannot map shared memory");
  memory_ = static_cast<std::byte*>(mapped);
  auto& header = *reinterpret_cast<Header*>(memory_);
  std::int32_t expected = 0;
  const bool is_consistent = header.ranks.compare_exchange_strong(expected, ranks) || expected == ranks;
  if (!is_consistent || local().is_taken.exchange(1) != 0) {
    munmap(memory_, bytes_);
    refuse_id(ncclInvalidUsage,
              is_consistent ? "two ranks have number " + std::to_string(rank)
                            : "ranks were given different numbers of ranks: " + std::to_string(expected) +
                                  " and " + std::to_string(ranks));
  }
  local().gpu = gpu;
  local().host = host_id();
  local().is_taken = 2;
}

NcclRendezvous::~NcclRendezvous() {
  close_file(inode_);
  munmap(memory_, bytes_);
}

NcclSlot& NcclRendezvous::slot(int rank) const {
  return reinterpret_cast<NcclSlot*>(memory_ + kHeaderBytes)[rank];
}

std::byte* NcclRendezvous::buffer(int rank, std::uint64_t chunk) const {
  const std::size_t number = static_cast<std::size_t>(rank) * NcclSlot::kBuffers + chunk % NcclSlot::kBuffers;
  return memory_ + slots_bytes(ranks_) + number * kChunkBytes;
}

bool NcclRendezvous::all_joined() {
  if (!all([](const NcclSlot& slot) { return slot.is_taken == 2; })) return false;
  close_file(inode_);
  return true;
}

std::pair<int, int> NcclRendezvous::shared_gpu() const {
  for (int second = 0; second < ranks_; ++second)
    for (int first = 0; first < second; ++first)
      if (slot(first).gpu == slot(second).gpu && slot(first).host == slot(second).host)
        return {first, second};
  return {0, 0};
}

}  // namespace convoy::emulator
