#include "convoy/datasets/formats/archive.h"

#include <archive.h>
#include <archive_entry.h>

#include <memory>

#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

using ArchiveHandle = std::unique_ptr<archive, int (*)(archive*)>;

[[noreturn]] void fail_with_reason(const std::string& name, archive* reader) {
  const char* reason = archive_error_string(reader);
  fail<DataError>("{}: damaged or truncated: {}", name,
                  reason != nullptr ? reason : "libarchive gives no reason");
}

std::string read_member(const std::string& name, archive* reader, std::size_t size) {
  std::string bytes(size, '\0');
  std::size_t done = 0;
  while (done < size) {
    const la_ssize_t got = archive_read_data(reader, bytes.data() + done, size - done);
    if (got < 0) fail_with_reason(name, reader);
    if (got == 0) fail<DataError>("{}: a member ends after {} bytes, expected {}", name, done, size);
    done += static_cast<std::size_t>(got);
  }
  return bytes;
}

}  // namespace

void for_each_member(const std::filesystem::path& file, std::uint64_t max_bytes, std::uint64_t max_total,
                     const std::function<void(const std::string& path, const std::string& bytes)>& visit) {
  const std::string name = file.string();
  const ArchiveHandle reader(archive_read_new(), archive_read_free);
  if (!reader) fail<DataError>("{}: libarchive cannot be initialized (out of memory)", name);
  archive_read_support_filter_gzip(reader.get());
  archive_read_support_format_tar(reader.get());
  constexpr std::size_t kBlock = std::size_t{1} << 16;
  if (archive_read_open_filename(reader.get(), name.c_str(), kBlock) != ARCHIVE_OK)
    fail_with_reason(name, reader.get());
  std::uint64_t total = 0;
  for (;;) {
    archive_entry* entry = nullptr;
    const int result = archive_read_next_header(reader.get(), &entry);
    if (result == ARCHIVE_EOF) return;
    if (result != ARCHIVE_OK) fail_with_reason(name, reader.get());
    if (archive_entry_filetype(entry) != AE_IFREG) continue;
    const char* path = archive_entry_pathname(entry);
    // Check the size before reading or skipping the data, because both unpack it.
    const la_int64_t size = archive_entry_size(entry);
    if (path == nullptr || size < 0 || static_cast<std::uint64_t>(size) > max_bytes)
      fail<DataError>("{}: member {} of {} bytes, expected at most {}", name,
                      path != nullptr ? path : "without name", size, max_bytes);
    total += static_cast<std::uint64_t>(size);
    if (total > max_total) fail<DataError>("{}: more than {} bytes when unpacked", name, max_total);
    visit(path, read_member(name, reader.get(), static_cast<std::size_t>(size)));
  }
}

}  // namespace convoy::data
