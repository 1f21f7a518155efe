// Decoded images, before they become part of a tensor.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "datasets/image_structure.h"

namespace convoy {

struct Pixels {
  ImageSize size;
  std::vector<std::uint8_t> rgb;  // [height, width, 3]
};

inline constexpr std::uint64_t kMostImageFileBytes = std::uint64_t{512} << 20;

/// JPEG, PNG or BMP, by their first bytes. Grey becomes three equal channels, 16 bits a channel the upper 8,
/// and transparency white. What EXIF says of orientation is not applied: the pixels are as they are stored.
Pixels decode_rgb(std::string_view bytes, const std::string& name);

/// stb_image behind a fence: no request for memory beyond `most_bytes` is granted, so that a stream that
/// inflates to more than its header promises fails. Returns `channels` (1 to 4) bytes a pixel; throws
/// DataError.
std::vector<std::uint8_t> decode_with_stb(std::string_view bytes, const std::string& name, ImageSize size,
                                          std::size_t most_bytes, int& channels);

}  // namespace convoy
