// The wire format of the TCP store, which is also the record format of the file store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace convoy::dist {

/// One message: a kind, a key and a value.
struct StoreFrame {
  enum class Kind : std::uint8_t {
    // Requests.
    hello,   // key: the job; value: "rank world_size token"
    set,     // key and value
    get,     // key; value: timeout in milliseconds
    gather,  // key: what/rank; value: "timeout first", a space and the value of the key, which it sets if `first` is 0: asks
             // for the values of what/first, what/(first + 1), …, once those of all ranks are set
    missing,  // key: what: asks for the ranks that have not set what/rank
    // Replies.
    ok,
    value,  // value: the value of the key; of a gather, as many runs of equal values as fit: numbers in 4 bytes, and messages
    absent,   // the key was not set before the timeout
    refused,  // value: the reason
  };
  static constexpr std::size_t kMaxKeyBytes = 1024;
  static constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;
  static constexpr std::size_t kMaxFrameBytes = kMaxValueBytes + 64;  // of `value`: with what a gather adds

  Kind kind = Kind::ok;
  std::string key;
  std::string value;

  /// Serializes the frame. Throws UsageError if the key or value is too long.
  std::string bytes() const;
};

/// Removes the first frame from `bytes` and returns it; nullopt if it is incomplete. Throws DataError as soon
/// as the bytes cannot be the beginning of a valid frame: the sender may be any program.
std::optional<StoreFrame> take_frame(std::string_view& bytes,
                                     std::size_t max_value_bytes = StoreFrame::kMaxFrameBytes);
std::optional<StoreFrame> take_frame(std::string& bytes,
                                     std::size_t max_value_bytes = StoreFrame::kMaxFrameBytes);

}  // namespace convoy::dist
