#include "convoy/comm/cluster/net/message.h"

#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kLengthBytes = 4;

}  // namespace

void append_number(std::string& bytes, std::uint64_t number, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) bytes += static_cast<char>(number >> (8 * i) & 0xff);
}

std::uint64_t number_at(std::string_view bytes, std::size_t position, std::size_t count) {
  std::uint64_t number = 0;
  for (std::size_t i = 0; i < count; ++i)
    number |= static_cast<std::uint64_t>(static_cast<unsigned char>(bytes[position + i])) << (8 * i);
  return number;
}

void append_message(std::string& bytes, const std::string& text) {
  append_number(bytes, text.size(), kLengthBytes);
  bytes += text;
}

std::optional<std::string> take_message(std::string_view& bytes, std::size_t max_bytes) {
  if (bytes.size() < kLengthBytes) return std::nullopt;
  const std::size_t length = number_at(bytes, 0, kLengthBytes);
  if (length > max_bytes)
    fail<DataError>("found a message of {} bytes, expected at most {}", length, max_bytes);
  if (bytes.size() < kLengthBytes + length) return std::nullopt;
  std::string text(bytes.substr(kLengthBytes, length));
  bytes.remove_prefix(kLengthBytes + length);
  return text;
}

std::optional<std::string> take_message(std::string& bytes, std::size_t max_bytes) {
  std::string_view left = bytes;
  std::optional<std::string> text = take_message(left, max_bytes);
  bytes.erase(0, bytes.size() - left.size());
  return text;
}

}  // namespace convoy::dist
