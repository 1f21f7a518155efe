// The only place where stb_image is compiled: static, so that another copy in the program does not clash.
// Built without UndefinedBehaviorSanitizer, which stops at stb's shifts of negative numbers and wrapping
// arithmetic on damaged files; AddressSanitizer stays on.
#include <climits>
#include <cstdlib>
#include <memory>
#include <new>

#include "datasets/pixels.h"
#include "kernels/runtime/check.h"

namespace {

thread_local std::size_t most_request = 0;  // bytes; set around each decoding

void* fenced_malloc(std::size_t bytes) { return bytes > most_request ? nullptr : std::malloc(bytes); }
void* fenced_realloc(void* block, std::size_t bytes) {
  return bytes > most_request ? nullptr : std::realloc(block, bytes);
}

}  // namespace

#define STBI_MALLOC(bytes) fenced_malloc(bytes)
#define STBI_REALLOC(block, bytes) fenced_realloc(block, bytes)
#define STBI_FREE(block) std::free(block)
#define STBI_ONLY_JPEG
#define STBI_ONLY_PNG
#define STBI_ONLY_BMP
#define STBI_NO_STDIO
#define STBI_NO_LINEAR
#define STBI_NO_HDR
#define STB_IMAGE_STATIC
#define STB_IMAGE_IMPLEMENTATION
#include <stb/stb_image.h>

namespace convoy {

std::vector<std::uint8_t> decode_with_stb(std::string_view bytes, const std::string& name, ImageSize size,
                                          std::size_t most_bytes, int& channels) {
  if (bytes.size() > INT_MAX)
    fail<DataError>("{}: {} bytes, too large for an image file", name, bytes.size());
  most_request = most_bytes;
  int width = 0, height = 0;
  const std::unique_ptr<stbi_uc, void (*)(void*)> decoded(
      stbi_load_from_memory(reinterpret_cast<const stbi_uc*>(bytes.data()), static_cast<int>(bytes.size()),
                            &width, &height, &channels, 0),
      std::free);
  if (!decoded) fail<DataError>("{}: damaged: the decoder says '{}'", name, stbi_failure_reason());
  if (width != size.width || height != size.height)
    fail<DataError>("{}: {} x {} pixels, expected {} x {}", name, width, height, size.width, size.height);
  const std::size_t values =
      static_cast<std::size_t>(width) * static_cast<std::size_t>(height) * static_cast<std::size_t>(channels);
  return {decoded.get(), decoded.get() + values};
}

}  // namespace convoy
