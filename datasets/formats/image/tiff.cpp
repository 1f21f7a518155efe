// Decoding of TIFF files with libtiff 4.5 or later, from memory. Errors and warnings go to handlers of the file,
// not to those of the process, which print them.
#include <tiffio.h>

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

/// A file in memory, and the first error that libtiff reports about it.
struct Source {
  std::string_view bytes;
  std::uint64_t position = 0;
  char error[200] = "";
};

Source& source_of(thandle_t handle) { return *static_cast<Source*>(handle); }

tmsize_t read(thandle_t handle, void* to, tmsize_t count) {
  Source& source = source_of(handle);
  if (source.position >= source.bytes.size() || count <= 0) return 0;
  const std::size_t taken = std::min(static_cast<std::size_t>(count), source.bytes.size() - source.position);
  std::memcpy(to, source.bytes.data() + source.position, taken);
  source.position += taken;
  return static_cast<tmsize_t>(taken);
}

tmsize_t refuse_write(thandle_t, void*, tmsize_t) { return 0; }

toff_t seek(thandle_t handle, toff_t offset, int whence) {
  Source& source = source_of(handle);
  if (whence == SEEK_CUR) offset += source.position;
  if (whence == SEEK_END) offset += source.bytes.size();
  return source.position = offset;
}

int close(thandle_t) { return 0; }

toff_t size(thandle_t handle) { return source_of(handle).bytes.size(); }

/// Returns 1, so that libtiff does not call the handlers of the process.
int keep_error(TIFF*, void* user, const char*, const char* format, va_list arguments) {
  char* const error = static_cast<Source*>(user)->error;
  if (*error == '\0') std::vsnprintf(error, sizeof Source::error, format, arguments);
  return 1;
}
int ignore(TIFF*, void*, const char*, const char*, va_list) { return 1; }

using File = std::unique_ptr<TIFF, void (*)(TIFF*)>;

File open(Source& source) {
  constexpr tmsize_t kMaxAllocation = tmsize_t{8} * kMaxPixels;  // 4 channels of 16 bits
  const std::unique_ptr<TIFFOpenOptions, void (*)(TIFFOpenOptions*)> options(TIFFOpenOptionsAlloc(),
                                                                             TIFFOpenOptionsFree);
  TIFFOpenOptionsSetMaxSingleMemAlloc(options.get(), kMaxAllocation);
  TIFFOpenOptionsSetErrorHandlerExtR(options.get(), keep_error, &source);
  TIFFOpenOptionsSetWarningHandlerExtR(options.get(), ignore, nullptr);
  return {TIFFClientOpenExt("image", "rm", &source, read, refuse_write, seek, close, size, nullptr, nullptr,
                            options.get()),
          TIFFClose};
}

/// Returns the message of the first error, on one line.
std::string reason(const Source& source) {
  return *source.error != '\0' ? source.error : "an unsupported or damaged image";
}

}  // namespace

bool reads_tiff() { return true; }

Pixels decode_with_libtiff(std::string_view bytes, const std::string& name) {
  Source source{.bytes = bytes};
  const File file = open(source);
  std::uint32_t width = 0, height = 0;
  if (file == nullptr || TIFFGetField(file.get(), TIFFTAG_IMAGEWIDTH, &width) == 0 ||
      TIFFGetField(file.get(), TIFFTAG_IMAGELENGTH, &height) == 0)
    fail<DataError>("{}: damaged: libtiff reports '{}', expected a TIFF image", name, reason(source));
  // Some compressions store rows of one color in a few bits, whatever their length.
  Pixels pixels{.size = check_image_size(width, height, kMaxPixels, bytes, name), .rgb = {}};
  std::uint16_t orientation = ORIENTATION_TOPLEFT;
  TIFFGetFieldDefaulted(file.get(), TIFFTAG_ORIENTATION, &orientation);
  const auto count = static_cast<std::size_t>(pixels.size.width * pixels.size.height);
  std::vector<std::uint32_t> raster(count);
  constexpr int kStopOnError = 1;
  // The orientation of the file itself is asked for, so that rows and columns stay as they are stored.
  if (TIFFReadRGBAImageOriented(file.get(), width, height, raster.data(), orientation, kStopOnError) == 0)
    fail<DataError>("{}: damaged: libtiff reports '{}', expected a TIFF image of {} x {} pixels", name,
                    reason(source), width, height);
  pixels.rgb.reserve(3 * count);
  for (const std::uint32_t value : raster) {
    // Colors are multiplied by alpha already, so white shows through by what is left.
    const std::uint32_t white = 255 - TIFFGetA(value);
    for (const std::uint32_t color : {TIFFGetR(value), TIFFGetG(value), TIFFGetB(value)})
      pixels.rgb.push_back(static_cast<std::uint8_t>(std::min(color + white, std::uint32_t{255})));
  }
  return upright(std::move(pixels), orientation);
}

}  // namespace convoy::data
