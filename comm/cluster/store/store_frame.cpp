#include "convoy/comm/cluster/store/store_frame.h"

#include <algorithm>
#include <string_view>

#include "convoy/comm/cluster/net/message.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr std::string_view kMagic = "CVOY2";  // includes the version
constexpr std::size_t kHeader = kMagic.size() + 1 + 4 + 4;

}  // namespace

std::string StoreFrame::bytes() const {
  check(key.size() <= kMaxKeyBytes && value.size() <= (kind == Kind::set ? kMaxValueBytes : kMaxFrameBytes),
        "store: found a key of {} bytes and a value of {} bytes, expected at most {} bytes and {} bytes",
        key.size(), value.size(), kMaxKeyBytes, kMaxValueBytes);
  std::string bytes(kMagic);
  bytes += static_cast<char>(kind);
  append_number(bytes, key.size(), 4);
  append_number(bytes, value.size(), 4);
  return bytes + key + value;
}

std::optional<StoreFrame> take_frame(std::string_view& bytes, std::size_t max_value_bytes) {
  const std::size_t known = std::min(bytes.size(), kMagic.size());
  if (bytes.substr(0, known) != kMagic.substr(0, known)) fail<DataError>("not a rendezvous message");
  if (bytes.size() < kHeader) return std::nullopt;
  const auto kind = static_cast<unsigned char>(bytes[kMagic.size()]);
  const std::size_t key = number_at(bytes, kMagic.size() + 1, 4),
                    value = number_at(bytes, kMagic.size() + 5, 4);
  if (kind > static_cast<unsigned char>(StoreFrame::Kind::refused) || key > StoreFrame::kMaxKeyBytes ||
      value > max_value_bytes)
    fail<DataError>("invalid rendezvous message: kind {}, key of {} bytes, value of {} bytes", kind, key,
                    value);
  if (bytes.size() < kHeader + key + value) return std::nullopt;
  StoreFrame frame{.kind = static_cast<StoreFrame::Kind>(kind),
                   .key = std::string(bytes.substr(kHeader, key)),
                   .value = std::string(bytes.substr(kHeader + key, value))};
  bytes.remove_prefix(kHeader + key + value);
  return frame;
}

std::optional<StoreFrame> take_frame(std::string& bytes, std::size_t max_value_bytes) {
  std::string_view left = bytes;
  std::optional<StoreFrame> frame = take_frame(left, max_value_bytes);
  bytes.erase(0, bytes.size() - left.size());
  return frame;
}

}  // namespace convoy::dist
