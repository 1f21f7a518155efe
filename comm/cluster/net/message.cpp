#include "convoy/comm/cluster/net/message.h"

#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kLengthBytes = 4;

}  // namespace

void append_message(std::string& bytes, const std::string& text) {
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    bytes += static_cast<char>(static_cast<unsigned char>(text.size() >> (8 * i)));
  bytes += text;
}

std::optional<std::string> take_message(std::string& bytes, std::size_t max_bytes) {
  if (bytes.size() < kLengthBytes) return std::nullopt;
  std::size_t length = 0;
  for (std::size_t i = 0; i < kLengthBytes; ++i)
    length |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[i])) << (8 * i);
  if (length > max_bytes)
    fail<DataError>("found a message of {} bytes, expected at most {}", length, max_bytes);
  if (bytes.size() < kLengthBytes + length) return std::nullopt;
  std::string text = bytes.substr(kLengthBytes, length);
  bytes.erase(0, kLengthBytes + length);
  return text;
}

}  // namespace convoy::dist
