// The only file that compiles stb_image. It is static, so that it does not conflict with another copy in the
// program. This file is built without UndefinedBehaviorSanitizer, because stb_image shifts negative numbers
// and overflows on damaged files. AddressSanitizer stays on.
#include <climits>
#include <cstdlib>
#include <memory>

#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"

namespace {

thread_local std::size_t max_request = 0;  // bytes; set before each decoding

void* bounded_malloc(std::size_t bytes) { return bytes > max_request ? nullptr : std::malloc(bytes); }
void* bounded_realloc(void* block, std::size_t bytes) {
  return bytes > max_request ? nullptr : std::realloc(block, bytes);
}

}  // namespace

#define STBI_MALLOC(bytes) bounded_malloc(bytes)
#define STBI_REALLOC(block, bytes) bounded_realloc(block, bytes)
#define STBI_FREE(block) std::free(block)
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>

namespace convoy::data {

std::vector<std::uint8_t> decode_with_stb(std::string_view bytes, const std::string& name, ImageSize size,
                                          std::size_t max_bytes, int& channels) {
  if (bytes.size() > INT_MAX)
    fail<DataError>("{}: {} bytes, too large for an image file", name, bytes.size());
  max_request = max_bytes;
  int width = 0, height = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> decoded(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(bytes.data()), static_cast<int>(bytes.size()),
                            &width, &height, &channels, 0),
      std::free);
  if (!decoded) fail<DataError>("{}: damaged: stb_image reports '{}'", name, stbi_failure_reason());
  if (width != size.width || height != size.height)
    fail<DataError>("{}: {} x {} pixels, expected {} x {}", name, width, height, size.width, size.height);
  const std::size_t values =
      static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * static_cast<std::size_t>(channels);
  return {decoded.get(), decoded.get() + values};
}

}  // namespace convoy::data
