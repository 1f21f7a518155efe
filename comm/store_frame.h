// What a store and its clients say to each other: frames of a kind, a key and a value.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace convoy {

struct StoreFrame {
  enum class Kind : std::uint8_t {
    // asked
    hello,  // key: the job, value: "rank world token"
    set,
    get,  // value: milliseconds to wait
    // answered
    ok,
    value,
    absent,
    refused,  // value: why
  };
  static constexpr std::size_t kLongestKey = 1024;
  static constexpr std::size_t kLongestValue = std::size_t{1} << 20;

  Kind kind = Kind::ok;
  std::string key;
  std::string value;

  std::string bytes() const;
};

/// Takes the first frame off the bytes; nothing while it has not come whole. DataError for what cannot become
/// a frame, as soon as that shows: whoever sends it need not be one of us.
std::optional<StoreFrame> take_frame(std::string& bytes,
                                     std::size_t longest_value = StoreFrame::kLongestValue);

}  // namespace convoy
