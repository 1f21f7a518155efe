// Flips bits in memory that processes share, as a defective memory module does.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <random>
#include <stdexcept>
#include <string>

namespace convoy::testing {

/// The largest shared segment of another process, found through its descriptors.
class BitFlipper {
 public:
  /// Maps the segment. Throws std::runtime_error if the process has none.
  explicit BitFlipper(pid_t process) {
    for (const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/fd")) {
      std::error_code ignored;  // the process opens and closes files meanwhile
      if (std::filesystem::read_symlink(entry, ignored).string().find("memfd:convoy") == std::string::npos)
        continue;
      const int file = open(entry.path().c_str(), O_RDWR | O_CLOEXEC);
      struct stat status {};
      if (file < 0) continue;
      if (fstat(file, &status) == 0 && static_cast<std::size_t>(status.st_size) > bytes_) {
        unmap();
        bytes_ = static_cast<std::size_t>(status.st_size);
        data_ = mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
      }
      close(file);
    }
    if (data_ == nullptr || data_ == MAP_FAILED) throw std::runtime_error("the process shares no memory");
  }
  ~BitFlipper() { unmap(); }
  BitFlipper(const BitFlipper&) = delete;
  BitFlipper& operator=(const BitFlipper&) = delete;

  /// Flips a random bit of the 32-bit word at `offset` bytes.
  void flip(std::size_t offset) {
    std::atomic_ref(words()[offset / sizeof(std::uint32_t)]) ^= 1U << random_() % 32;
  }
  /// Flips a random bit in the first of two adjacent words that equal `value`, if there are such. The search
  /// begins at a random place.
  void flip_one_of(std::uint32_t value) {
    const std::size_t count = bytes_ / sizeof(std::uint32_t), first = random_() % count;
    for (std::size_t i = 0; i + 1 < count; ++i) {
      const std::size_t place = (first + i) % (count - 1);
      if (word(place) == value && word(place + 1) == value) return flip(place * sizeof(std::uint32_t));
    }
  }

 private:
  std::uint32_t* words() const { return static_cast<std::uint32_t*>(data_); }
  std::uint32_t word(std::size_t i) const {
    return std::atomic_ref(words()[i]).load(std::memory_order_relaxed);
  }
  void unmap() {
    if (data_ != nullptr && data_ != MAP_FAILED) munmap(data_, bytes_);
  }

  void* data_ = nullptr;
  std::size_t bytes_ = 0;
  std::minstd_rand random_;
};

}  // namespace convoy::testing
