// The wire format of the TCP store, which is also the record format of the file store.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace convoy::dist {

/// One message: a kind, a key and a value.
struct StoreFrame {
  enum class Kind : std::uint8_t {
    // Requests.
    hello,  // key: the job; value: "rank world_size token"
    set,    // key and value
    get,    // key; value: timeout in milliseconds
    gather,  // key; value: "timeout first": the values of key/first, key/(first + 1), …, once those of all ranks are set
    // Replies.
    ok,
    value,  // value: the value of the key; of a gather, as many values as fit, each as a message (net/message.h)
    absent,   // the key was not set before the timeout
    refused,  // value: the reason
  };
  static constexpr std::size_t kMaxKeyBytes = 1024;
  static constexpr std::size_t kMaxValueBytes = std::size_t{1} << 20;

  Kind kind = Kind::ok;
  std::string key;
  std::string value;

  /// Serializes the frame. Throws UsageError if the key or value is too long.
  std::string bytes() const;
};

/// Removes the first frame from `bytes` and returns it; nullopt if it is incomplete. Throws DataError as soon
/// as the bytes cannot be the beginning of a valid frame: the sender may be any program.
std::optional<StoreFrame> take_frame(std::string& bytes,
                                     std::size_t max_value_bytes = StoreFrame::kMaxValueBytes);

}  // namespace convoy::dist
