// Decoding of HEIC files, the photographs of phones, with libheif, which checks untrusted input itself.
#include <libheif/heif.h>

#include <memory>

#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

void check_heif(const heif_error& error, const std::string& name) {
  if (error.code != heif_error_Ok)
    fail<DataError>("{}: damaged, or of an unknown kind: libheif: {}", name,
                    error.message != nullptr ? error.message : "");
}

}  // namespace

bool reads_heif() { return true; }

Samples decode_with_libheif(std::string_view bytes, const std::string& name) {
  const std::unique_ptr<heif_context, decltype(&heif_context_free)> context(heif_context_alloc(),
                                                                            heif_context_free);
  check_heif(heif_context_read_from_memory_without_copy(context.get(), bytes.data(), bytes.size(), nullptr),
             name);
  heif_image_handle* found = nullptr;
  check_heif(heif_context_get_primary_image_handle(context.get(), &found), name);
  const std::unique_ptr<heif_image_handle, decltype(&heif_image_handle_release)> handle(
      found, heif_image_handle_release);
  // A tile of one color takes some tens of bytes, and may be repeated.
  check_image_size(heif_image_handle_get_width(found), heif_image_handle_get_height(found), kMaxPixels, bytes,
                   name);
  const bool has_alpha = heif_image_handle_has_alpha_channel(found) != 0;
  heif_image* decoded = nullptr;
  check_heif(
      heif_decode_image(found, &decoded, heif_colorspace_RGB,
                        has_alpha ? heif_chroma_interleaved_RGBA : heif_chroma_interleaved_RGB, nullptr),
      name);
  const std::unique_ptr<heif_image, decltype(&heif_image_release)> image(decoded, heif_image_release);
  int stride = 0;
  const std::uint8_t* const rows = heif_image_get_plane_readonly(decoded, heif_channel_interleaved, &stride);
  const ImageSize size = check_image_size(heif_image_get_primary_width(decoded),
                                          heif_image_get_primary_height(decoded), kMaxPixels, bytes, name);
  Samples samples{.size = size, .channels = has_alpha ? 4 : 3, .values = {}};
  for (std::int64_t y = 0; y < size.height; ++y)
    samples.values.insert(samples.values.end(), rows + y * stride,
                          rows + y * stride + size.width * samples.channels);
  return samples;
}

}  // namespace convoy::data
