// Address space for arrays of a checked program.
#pragma once

#include <cstddef>

namespace convoy::emulator {

/// A range of addresses in which each array has pages of its own, at least kGap bytes away from the others.
/// Addresses are not used again, so that an access to a freed array is known as one.
class Arena {
 public:
  static constexpr std::size_t kGap = std::size_t{64} << 10;

  /// Reserves the addresses. Throws std::bad_alloc if the system refuses.
  Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  /// Returns memory of zeros at a multiple of 4096, or null if the addresses are used up.
  void* allocate(std::size_t bytes);
  /// Returns the pages of an array to the system.
  void release(void* begin, std::size_t bytes);
  bool contains(const void* address) const {
    return address >= begin_ && address < static_cast<const char*>(begin_) + kBytes;
  }
  /// Permits, or forbids, all accesses. Permitted at first.
  void set_access(bool is_permitted);

 private:
  static constexpr std::size_t kBytes = std::size_t{1} << 40;

  void* begin_;
  std::size_t used_ = kGap;
  bool is_permitted_ = true;
};

}  // namespace convoy::emulator
