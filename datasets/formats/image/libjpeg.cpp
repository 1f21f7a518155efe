// Decoding of JPEG files with libjpeg-turbo, which reports errors by calling back. The callback must not return,
// and must not throw through the frames of C. It jumps out of the library, so decode() holds no object with a
// destructor.
#include <csetjmp>
#include <cstdio>  // jpeglib.h needs FILE

#include <jpeglib.h>

#include <jerror.h>  // its numbers depend on the version in jpeglib.h

#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

struct Decoder {
  jpeg_decompress_struct state{};
  jpeg_error_mgr errors{};
  std::jmp_buf on_error{};
  char message[JMSG_LENGTH_MAX] = "";
};

[[noreturn]] void stop(j_common_ptr state) {
  auto& decoder = *static_cast<Decoder*>(state->client_data);
  state->err->format_message(state, decoder.message);
  std::longjmp(decoder.on_error, 1);
}

/// Stops at warnings after which the library would invent pixels. Others are common in intact images: an
/// unknown revision, or bytes between segments.
void warn_or_stop(j_common_ptr state, int level) {
  if (level >= 0) return;  // a trace message
  switch (state->err->msg_code) {
    case JWRN_BOGUS_PROGRESSION:
    case JWRN_HIT_MARKER:
    case JWRN_HUFF_BAD_CODE:
    case JWRN_JPEG_EOF:
    case JWRN_MUST_RESYNC: stop(state);
    default: break;
  }
}

/// Converts `count` pixels of inverted inks, which store what each ink leaves of the light.
void rgb_from_inverted_inks(const std::uint8_t* cmyk, std::size_t count, std::uint8_t* rgb) {
  for (std::size_t i = 0; i < count; ++i, cmyk += 4, rgb += 3)
    for (std::size_t c = 0; c < 3; ++c) rgb[c] = static_cast<std::uint8_t>((cmyk[c] * cmyk[3] + 127) / 255);
}

/// Decodes an image of `size` into rgb, [height, width, 3], with sides divided by `reduction` and rounded up. `cmyk` has
/// room for the four components of a row. Returns whether it succeeds; if not, `message` of the decoder is the reason.
bool decode(Decoder& decoder, std::string_view bytes, ImageSize size, int reduction, std::uint8_t* rgb,
            std::uint8_t* cmyk) {
  jpeg_decompress_struct& state = decoder.state;
  state.err = jpeg_std_error(&decoder.errors);
  state.err->error_exit = stop;
  state.err->emit_message = warn_or_stop;
  state.client_data = &decoder;
  if (setjmp(decoder.on_error) != 0) return false;
  jpeg_create_decompress(&state);
  jpeg_mem_src(&state, reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data())), bytes.size());
  jpeg_read_header(&state, TRUE);
  if (state.image_width != size.width || state.image_height != size.height) {
    std::snprintf(decoder.message, sizeof decoder.message, "found %u x %u pixels", state.image_width,
                  state.image_height);
    return false;
  }
  state.scale_denom = static_cast<unsigned>(reduction);  // scale_num is 1
  const bool has_inks = state.num_components == 4;
  state.out_color_space = has_inks ? JCS_CMYK : JCS_RGB;
  state.dct_method = JDCT_ISLOW;  // the same bits with and without SIMD
  jpeg_start_decompress(&state);
  while (state.output_scanline < state.output_height) {
    JSAMPROW pixels = rgb + std::size_t{state.output_scanline} * state.output_width * 3;
    JSAMPROW row = has_inks ? cmyk : pixels;
    jpeg_read_scanlines(&state, &row, 1);
    if (has_inks) rgb_from_inverted_inks(cmyk, state.output_width, pixels);
  }
  jpeg_finish_decompress(&state);
  return true;
}

}  // namespace

std::string jpeg_decoder_text() {
  constexpr int kVersion = LIBJPEG_TURBO_VERSION_NUMBER;  // three digits per part
  return fmt::format("libjpeg-turbo {}.{}.{}", kVersion / 1'000'000, kVersion / 1000 % 1000, kVersion % 1000);
}

Pixels decode_with_libjpeg(std::string_view bytes, const std::string& name, ImageSize size, int reduction) {
  const auto reduced = [reduction](std::int64_t side) { return (side + reduction - 1) / reduction; };
  Pixels pixels{.size = {reduced(size.width), reduced(size.height)}, .rgb = {}, .is_reduced = reduction > 1};
  pixels.rgb.resize(static_cast<std::size_t>(pixels.size.width * pixels.size.height * 3));
  std::vector<std::uint8_t> cmyk(static_cast<std::size_t>(pixels.size.width * 4));
  Decoder decoder;
  const bool succeeds = decode(decoder, bytes, size, reduction, pixels.rgb.data(), cmyk.data());
  jpeg_destroy_decompress(&decoder.state);
  if (!succeeds)
    fail<DataError>("{}: damaged: libjpeg-turbo reports '{}', expected a JPEG image of {} x {} pixels", name,
                    static_cast<const char*>(decoder.message), size.width, size.height);
  return pixels;
}

}  // namespace convoy::data
