#include "tests/cuda_emulator/nccl_meeting.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>

#include "tests/cuda_emulator/vendor_state.h"

namespace convoy::emulator {
namespace {

struct Header {
  std::atomic<std::int32_t> ranks;  // as the first says
};

constexpr std::size_t kHeaderBytes = 64;
constexpr std::size_t kPage = 4096;
static_assert(sizeof(Header) <= kHeaderBytes && sizeof(NcclSeat) % 8 == 0);

std::size_t seats_bytes(int ranks) {
  return (kHeaderBytes + static_cast<std::size_t>(ranks) * sizeof(NcclSeat) + kPage - 1) / kPage * kPage;
}

std::size_t bytes_for(int ranks) {
  return seats_bytes(ranks) + static_cast<std::size_t>(ranks) * NcclSeat::kBuffers * NcclMeeting::kChunkBytes;
}

/// Files that this process keeps open for ranks that have not come, by inode. Under the driver's lock.
std::map<std::uint64_t, int>& open_places() {
  static std::map<std::uint64_t, int>& all = *new std::map<std::uint64_t, int>;  // never destroyed
  return all;
}

void close_place(std::uint64_t inode) {
  const auto found = open_places().find(inode);
  if (found == open_places().end()) return;
  close(found->second);
  open_places().erase(found);
}

[[noreturn]] void refuse(ncclResult_t status, const std::string& why) {
  throw Refusal<ncclResult_t>{status, why};
}

/// The file that the id names, opened once more.
int open_file(const ncclUniqueId& id, std::uint64_t& inode) {
  int process = 0, number = 0;
  unsigned long long expected = 0;
  if (id.internal[sizeof id.internal - 1] != '\0' ||
      std::sscanf(id.internal, "convoy %d %d %llu", &process, &number, &expected) != 3)
    refuse(ncclInvalidArgument, "not an id of ncclGetUniqueId");
  const std::string path = "/proc/" + std::to_string(process) + "/fd/" + std::to_string(number);
  const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0 || status.st_ino != expected) {
    if (file >= 0) close(file);
    refuse(ncclSystemError, "the rank that made the id has gone");
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

bool NcclMeeting::found(ncclUniqueId& id) {
  const int file = memfd_create("convoy-nccl", MFD_CLOEXEC);
  struct stat status {};
  if (file < 0 || fstat(file, &status) != 0) return false;
  open_places()[status.st_ino] = file;
  id = {};
  std::snprintf(id.internal, sizeof id.internal, "convoy %d %d %llu", getpid(), file,
                static_cast<unsigned long long>(status.st_ino));
  return true;
}

NcclMeeting::NcclMeeting(const ncclUniqueId& id, int rank, int ranks, int gpu)
    : bytes_(bytes_for(ranks)), rank_(rank), ranks_(ranks) {
  const int file = open_file(id, inode_);
  struct stat status {};
  fstat(file, &status);
  // All ranks make it as large, unless they disagree. Fresh bytes are zeros, which is how atomics begin.
  const bool has_grown =
      static_cast<std::size_t>(status.st_size) >= bytes_ || ftruncate(file, static_cast<off_t>(bytes_)) == 0;
  void* const mapped =
      has_grown ? mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0) : MAP_FAILED;
  close(file);
  if (mapped == MAP_FAILED) refuse(ncclSystemError, "no shared memory");
  memory_ = static_cast<std::byte*>(mapped);
  auto& header = *reinterpret_cast<Header*>(memory_);
  std::int32_t said = 0;
  const bool agrees = header.ranks.compare_exchange_strong(said, ranks) || said == ranks;
  if (!agrees || mine().is_taken.exchange(1) != 0) {
    munmap(memory_, bytes_);
    refuse(ncclInvalidUsage, agrees ? "two ranks " + std::to_string(rank)
                                    : "ranks disagree about how many they are: " + std::to_string(said) +
                                          " and " + std::to_string(ranks));
  }
  mine().gpu = gpu;
  mine().host = host_id();
  mine().is_taken = 2;
}

NcclMeeting::~NcclMeeting() {
  close_place(inode_);
  munmap(memory_, bytes_);
}

NcclSeat& NcclMeeting::seat(int rank) const {
  return reinterpret_cast<NcclSeat*>(memory_ + kHeaderBytes)[rank];
}

std::byte* NcclMeeting::buffer(int rank, std::uint64_t chunk) const {
  const std::size_t number = static_cast<std::size_t>(rank) * NcclSeat::kBuffers + chunk % NcclSeat::kBuffers;
  return memory_ + seats_bytes(ranks_) + number * kChunkBytes;
}

bool NcclMeeting::everyone_came() {
  if (!all([](const NcclSeat& seat) { return seat.is_taken == 2; })) return false;
  close_place(inode_);
  return true;
}

std::pair<int, int> NcclMeeting::doubled_gpu() const {
  for (int second = 0; second < ranks_; ++second)
    for (int first = 0; first < second; ++first)
      if (seat(first).gpu == seat(second).gpu && seat(first).host == seat(second).host)
        return {first, second};
  return {0, 0};
}

}  // namespace convoy::emulator
