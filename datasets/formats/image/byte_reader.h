// A bounds-checked reader for untrusted bytes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "convoy/kernels/base/check.h"

namespace convoy::data {

/// A read position in the contents of a file. Every read throws DataError with the file name if the bytes end
/// too early. The caller keeps the bytes and the name alive.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, const std::string& name) : bytes_(bytes), name_(name) {}

  std::size_t position() const { return position_; }
  std::size_t remaining() const { return bytes_.size() - position_; }
  const std::string& name() const { return name_; }

  /// Returns the next `count` bytes and advances. `what` describes them in the error message.
  std::string_view take(std::size_t count, std::string_view what) {
    if (count > remaining())
      fail<DataError>("{}: cut off at byte {}, expected {} ({} bytes) at byte {}", name_, bytes_.size(), what,
                      count, position_);
    const std::string_view taken = bytes_.substr(position_, count);
    position_ += count;
    return taken;
  }
  std::uint8_t u8(std::string_view what) { return static_cast<std::uint8_t>(take(1, what)[0]); }
  std::uint16_t big16(std::string_view what) { return static_cast<std::uint16_t>(big(2, what)); }
  std::uint32_t big32(std::string_view what) { return big(4, what); }
  std::uint16_t little16(std::string_view what) { return static_cast<std::uint16_t>(little(2, what)); }
  std::uint32_t little32(std::string_view what) { return little(4, what); }

 private:
  std::uint32_t big(std::size_t count, std::string_view what) {
    std::uint32_t value = 0;
    for (const char byte : take(count, what)) value = (value << 8) | static_cast<std::uint8_t>(byte);
    return value;
  }
  std::uint32_t little(std::size_t count, std::string_view what) {
    std::uint32_t value = 0;
    int shift = 0;
    for (const char byte : take(count, what)) {
      value |= std::uint32_t{static_cast<std::uint8_t>(byte)} << shift;
      shift += 8;
    }
    return value;
  }

  std::string_view bytes_;
  const std::string& name_;
  std::size_t position_ = 0;
};

}  // namespace convoy::data
