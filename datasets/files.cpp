#include "convoy/datasets/files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <system_error>

#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace fs = std::filesystem;
namespace {

/// Asks the system for small pages, which some hosts clear faster than huge ones. Images are written once, so that the
/// clearing costs more than huge pages save.
void use_small_pages(const Tensor& images) {
  const auto page = static_cast<std::uintptr_t>(sysconf(_SC_PAGE_SIZE));
  const auto begin = reinterpret_cast<std::uintptr_t>(images.view().data);
  const std::uintptr_t first = (begin + page - 1) / page * page;
  const std::uintptr_t end = (begin + images.bytes()) / page * page;
  // An error is ignored: the images then have huge pages.
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_NOHUGEPAGE);
}

}  // namespace

std::string read_file(const fs::path& file, std::uint64_t max_bytes) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::exists(status)) fail<DataError>("{}: no such file", file.string());
  // Reading a pipe or a device could block or never end.
  if (!fs::is_regular_file(status)) fail<DataError>("{}: not a regular file", file.string());
  const std::uintmax_t size = fs::file_size(file, error);
  if (error) fail<DataError>("{}: {}", file.string(), error.message());
  if (size > max_bytes)
    fail<DataError>("{}: {} bytes, expected at most {}", file.string(), static_cast<std::uint64_t>(size),
                    max_bytes);
  std::ifstream in(file, std::ios::binary);
  if (!in) fail<DataError>("{}: cannot be opened for reading: {}", file.string(), std::strerror(errno));
  std::string bytes(static_cast<std::size_t>(size), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<std::uintmax_t>(in.gcount()) != size)
    fail<DataError>("{}: {} of {} bytes could be read", file.string(), in.gcount(),
                    static_cast<std::uint64_t>(size));
  return bytes;
}

std::vector<fs::directory_entry> list_directory(const fs::path& directory) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) entries.push_back(*at);
  if (error) fail<DataError>("{}: cannot be listed: {}", directory.string(), error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

void require_directory(const fs::path& directory) {
  std::error_code error;
  if (!fs::exists(directory, error))
    fail<DataError>("{}: no such directory{}", directory.string(), error ? " (" + error.message() + ")" : "");
  if (!fs::is_directory(directory, error))
    fail<DataError>("{}: a file, expected a directory", directory.string());
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_existing_directory(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

std::string lower_case(std::string text) {
  for (char& letter : text)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return text;
}

Tensor allocate_images(const std::string& name, std::int64_t count, std::int64_t height, std::int64_t width,
                       std::int64_t channels) {
  const double bytes = static_cast<double>(count) * static_cast<double>(height * width * channels);
  try {
    if (bytes < 0x1p62) {
      const Tensor images = Tensor::empty({count, height, width, channels}, DType::u8, Device::cpu());
      use_small_pages(images);
      return images;
    }
  } catch (const DeviceError&) {
    // Reported below with the number of images and a remedy.
  }
  fail<DataError>(
      "{}: {} images of {} x {} x {} need {:.1f} GiB of memory, which this machine does not have; "
      "lower the image size",
      name, count, height, width, channels, bytes * 0x1p-30);
}

}  // namespace convoy::data
