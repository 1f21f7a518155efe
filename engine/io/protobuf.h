// A writer of messages in the encoding of Protocol Buffers
// (https://protobuf.dev/programming-guides/encoding), as far as ONNX files need it.
#pragma once

#include <bit>
#include <cstdint>
#include <string>
#include <string_view>

namespace convoy::io {

/// One message, to which fields are appended by their numbers. A repeated field is appended several times.
/// The functions return the message itself.
class ProtobufMessage {
 public:
  /// Appends an int64, an int32 or an enum.
  ProtobufMessage& integer(int field, std::int64_t value) {
    tag(field, WireType::varint);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  /// Appends a float.
  ProtobufMessage& number(int field, float value) {
    tag(field, WireType::fixed32);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift);
    return *this;
  }
  /// Appends a string, which must be UTF-8, or bytes.
  ProtobufMessage& bytes(int field, std::string_view value) {
    tag(field, WireType::length_delimited);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  /// Appends a message.
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return bytes(field, value.bytes_); }

  /// Returns the encoded fields.
  const std::string& encoded() const { return bytes_; }

 private:
  enum class WireType : std::uint8_t { varint = 0, length_delimited = 2, fixed32 = 5 };
  void tag(int field, WireType type) {
    varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

}  // namespace convoy::io
