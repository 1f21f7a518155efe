// Replaces libjpeg.cpp in a build without libjpeg-turbo.
#include "convoy/datasets/formats/image/pixels.h"

namespace convoy::data {

std::string jpeg_decoder_text() { return "stb_image"; }

std::optional<Pixels> decode_with_libjpeg(std::string_view, const std::string&, ImageSize, int) {
  return std::nullopt;
}

}  // namespace convoy::data
