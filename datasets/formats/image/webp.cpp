// Decoding of WebP files with libwebp, which checks untrusted input itself.
#include <webp/decode.h>

#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {

bool reads_webp() { return true; }

Samples decode_with_libwebp(std::string_view bytes, const std::string& name) {
  const auto* const data = reinterpret_cast<const std::uint8_t*>(bytes.data());
  WebPBitstreamFeatures features;
  if (WebPGetFeatures(data, bytes.size(), &features) != VP8_STATUS_OK)
    fail<DataError>("{}: damaged: libwebp finds no complete header, expected a WebP image", name);
  if (features.has_animation != 0) fail<DataError>("{}: an animated WebP image, expected a still one", name);
  // A plain image takes some tens of bytes, whatever its size.
  const ImageSize size = check_image_size(features.width, features.height, kMaxPixels, bytes, name);
  Samples decoded{.size = size, .channels = features.has_alpha != 0 ? 4 : 3, .values = {}};
  const std::int64_t row = size.width * decoded.channels;
  decoded.values.resize(static_cast<std::size_t>(row * size.height));
  const auto decode = features.has_alpha != 0 ? WebPDecodeRGBAInto : WebPDecodeRGBInto;
  if (decode(data, bytes.size(), decoded.values.data(), decoded.values.size(), static_cast<int>(row)) ==
      nullptr)
    fail<DataError>("{}: damaged: libwebp cannot decode the image data", name);
  return decoded;
}

}  // namespace convoy::data
