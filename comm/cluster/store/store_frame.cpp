#include "convoy/comm/cluster/store/store_frame.h"

#include <algorithm>
#include <string_view>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr std::string_view kMagic = "CVOY1";  // includes the version
constexpr std::size_t kHeader = kMagic.size() + 1 + 4 + 4;

void append_number(std::string& bytes, std::size_t number) {
  for (int shift = 0; shift < 32; shift += 8) bytes += static_cast<char>(number >> shift & 0xff);
}

std::size_t number_at(const std::string& bytes, std::size_t offset) {
  std::size_t number = 0;
  for (std::size_t i = 0; i < 4; ++i)
    number |= static_cast<std::size_t>(static_cast<unsigned char>(bytes[offset + i])) << 8 * i;
  return number;
}

}  // namespace

std::string StoreFrame::bytes() const {
  check(key.size() <= kMaxKeyBytes && value.size() <= kMaxValueBytes,
        "store: found a key of {} bytes and a value of {} bytes, expected at most {} bytes and {} bytes",
        key.size(), value.size(), kMaxKeyBytes, kMaxValueBytes);
  std::string bytes(kMagic);
  bytes += static_cast<char>(kind);
  append_number(bytes, key.size());
  append_number(bytes, value.size());
  return bytes + key + value;
}

std::optional<StoreFrame> take_frame(std::string& bytes, std::size_t max_value_bytes) {
  const std::size_t known = std::min(bytes.size(), kMagic.size());
  if (std::string_view(bytes).substr(0, known) != kMagic.substr(0, known))
    fail<DataError>("not a rendezvous message");
  if (bytes.size() < kHeader) return std::nullopt;
  const auto kind = static_cast<unsigned char>(bytes[kMagic.size()]);
  const std::size_t key = number_at(bytes, kMagic.size() + 1), value = number_at(bytes, kMagic.size() + 5);
  if (kind > static_cast<unsigned char>(StoreFrame::Kind::refused) || key > StoreFrame::kMaxKeyBytes ||
      value > max_value_bytes)
    fail<DataError>("invalid rendezvous message: kind {}, key of {} bytes, value of {} bytes", kind, key,
                    value);
  if (bytes.size() < kHeader + key + value) return std::nullopt;
  StoreFrame frame{.kind = static_cast<StoreFrame::Kind>(kind),
                   .key = bytes.substr(kHeader, key),
                   .value = bytes.substr(kHeader + key, value)};
  bytes.erase(0, kHeader + key + value);
  return frame;
}

}  // namespace convoy::dist
