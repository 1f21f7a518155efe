#include "convoy/datasets/files.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <span>
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

/// Throws StorageError if the device has failed.
bool checked(bool result, const std::error_code& error, const fs::path& path) {
  if (is_transient(error.value()))
    fail_read<DataError>(error.value(), "{}: cannot be accessed", path.string());
  return result;
}

}  // namespace

std::string read_file(const fs::path& file, std::uint64_t max_bytes) {
  try {
    return io::read_text_file(file, max_bytes);
  } catch (const CheckpointError& error) {
    throw DataError(error.what());
  }
}

std::vector<fs::directory_entry> list_directory(const fs::path& directory) {
  std::vector<fs::directory_entry> entries;
  std::error_code error;
  fs::directory_iterator at(directory, error);
  for (; !error && at != fs::directory_iterator(); at.increment(error)) entries.push_back(*at);
  if (error) fail_read<DataError>(error.value(), "{}: cannot be listed", directory.string());
  std::sort(entries.begin(), entries.end());
  return entries;
}

void require_directory(const fs::path& directory) {
  std::error_code error;
  const bool exists = fs::exists(directory, error);
  if (error) fail_read<DataError>(error.value(), "{}: cannot be accessed", directory.string());
  if (!exists) fail<DataError>("{}: no such directory", directory.string());
  if (!fs::is_directory(directory, error))
    fail<DataError>("{}: a file, expected a directory", directory.string());
}

bool is_file(const fs::path& path) {
  std::error_code error;
  return checked(fs::is_regular_file(path, error), error, path);
}

bool is_file(const fs::directory_entry& entry) {
  std::error_code error;
  return checked(entry.is_regular_file(error), error, entry.path());
}

bool is_existing_directory(const fs::path& path) {
  std::error_code error;
  return checked(fs::is_directory(path, error), error, path);
}

bool is_existing_directory(const fs::directory_entry& entry) {
  std::error_code error;
  return checked(entry.is_directory(error), error, entry.path());
}

void write_at(const io::FileDescriptor& file, std::string_view bytes, std::size_t offset,
              const std::string& name) {
  while (!bytes.empty()) {
    const ssize_t written = ::pwrite(file.get(), bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (written < 0 && errno == EINTR) continue;
    if (written < 0) fail<OutputError>("{}: cannot be written: {}", name, std::strerror(errno));
    bytes.remove_prefix(static_cast<std::size_t>(written));
    offset += static_cast<std::size_t>(written);
  }
}

std::string listed(const std::vector<std::string>& texts, std::size_t maximum, std::string_view separator) {
  return fmt::format("{}{}{}", fmt::join(std::span(texts).first(std::min(maximum, texts.size())), separator),
                     texts.size() > maximum ? separator : "", texts.size() > maximum ? "…" : "");
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
