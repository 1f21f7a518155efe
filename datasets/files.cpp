#include "datasets/files.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <system_error>

#include "kernels/runtime/check.h"

namespace convoy {
namespace fs = std::filesystem;

std::string read_file(const fs::path& file, std::uint64_t most) {
  std::error_code error;
  const fs::file_status status = fs::status(file, error);
  if (!fs::exists(status)) fail<DataError>("{}: no such file", file.string());
  // A pipe or a device would block, or never end.
  if (!fs::is_regular_file(status)) fail<DataError>("{}: not a regular file", file.string());
  const std::uintmax_t size = fs::file_size(file, error);
  if (error) fail<DataError>("{}: {}", file.string(), error.message());
  if (size > most)
    fail<DataError>("{}: {} bytes, expected at most {}", file.string(), static_cast<std::uint64_t>(size),
                    most);
  std::ifstream in(file, std::ios::binary);
  if (!in) fail<DataError>("{}: cannot be opened for reading: {}", file.string(), std::strerror(errno));
  std::string bytes(static_cast<std::size_t>(size), '\0');
  in.read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  if (static_cast<std::uintmax_t>(in.gcount()) != size)
    fail<DataError>("{}: {} of {} bytes could be read", file.string(), in.gcount(),
                    static_cast<std::uint64_t>(size));
  return bytes;
}

std::vector<fs::directory_entry> list_folder(const fs::path& folder) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  fs::directory_iterator at(folder, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error))
    if (!at->path().filename().string().starts_with('.')) entries.push_back(*at);
  if (error) fail<DataError>("{}: cannot be listed: {}", folder.string(), error.message());
  std::sort(entries.begin(), entries.end());
  return entries;
}

void require_folder(const fs::path& folder) {
  std::error_code error;
  if (!fs::exists(folder, error))
    fail<DataError>("{}: no such folder{}", folder.string(), error ? " (" + error.message() + ")" : "");
  if (!fs::is_directory(folder, error)) fail<DataError>("{}: a file, expected a folder", folder.string());
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

bool is_folder(const fs::path& path) {
  std::error_code error;
  return fs::is_directory(path, error);
}

Tensor allocate_images(const std::string& name, std::int64_t count, std::int64_t height, std::int64_t width,
                       std::int64_t channels) {
  const double bytes = static_cast<double>(count) * static_cast<double>(height * width * channels);
  try {
    if (bytes < 0x1p62) return Tensor::empty({count, height, width, channels}, DType::u8, Device::cpu());
  } catch (const DeviceError&) {
    // told below, with what a user of data sets can do about it
  }
  fail<DataError>(
      "{}: {} images of {} x {} x {} need {:.1f} GiB of memory, which this machine does not have; "
      "lower --image-size",
      name, count, height, width, channels, bytes * 0x1p-30);
}

}  // namespace convoy
