#define ZLIB_CONST  // next_in as a pointer to const

#include <archive.h>
#include <archive_entry.h>
#include <zlib.h>
#include <algorithm>
#include <limits>
#include <memory>

#include "convoy/datasets/formats/parsers.h"
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

struct GzipReader::Stream : z_stream {
  bool ended = false;  // the current member is complete and its checksum is right
};

GzipReader::GzipReader(std::string_view bytes, const std::string& name)
    : bytes_(bytes), input_size_(bytes.size()), name_(name) {
  if (!bytes.starts_with("\x1f\x8b")) return;
  stream_ = std::make_unique<Stream>();
  if (inflateInit2(stream_.get(), 16 + MAX_WBITS) != Z_OK)
    fail<DataError>("{}: zlib cannot be initialized (out of memory)", name);
}

GzipReader::~GzipReader() {
  if (stream_) inflateEnd(stream_.get());
}

std::uint64_t GzipReader::max_output() const { return stream_ ? input_size_ * 1032 : input_size_; }

std::size_t GzipReader::read(void* out, std::size_t count) {
  auto* target = static_cast<unsigned char*>(out);
  if (!stream_) {
    const std::size_t taken = bytes_.copy(static_cast<char*>(out), count);
    bytes_.remove_prefix(taken);
    return taken;
  }
  constexpr std::size_t kMax = std::numeric_limits<uInt>::max();
  std::size_t done = 0;
  while (done < count) {
    if (stream_->ended) {
      if (!bytes_.starts_with("\x1f\x8b")) break;  // the end; a gzip file may have several members
      inflateReset(stream_.get());
      stream_->ended = false;
    }
    const std::size_t input = std::min(bytes_.size(), kMax);
    const std::size_t room = std::min(count - done, kMax);
    stream_->next_in = reinterpret_cast<const Bytef*>(bytes_.data());
    stream_->avail_in = static_cast<uInt>(input);
    stream_->next_out = target + done;
    stream_->avail_out = static_cast<uInt>(room);
    const int result = inflate(stream_.get(), Z_NO_FLUSH);
    bytes_.remove_prefix(input - stream_->avail_in);
    done += room - stream_->avail_out;
    if (result == Z_STREAM_END)
      stream_->ended = true;
    else if (result == Z_BUF_ERROR || (result == Z_OK && bytes_.empty() && done < count))
      fail<DataError>("{}: the gzip stream is truncated: the file ends after {} bytes", name_, input_size_);
    else if (result != Z_OK)
      fail<DataError>("{}: the gzip stream is damaged: {}", name_,
                      stream_->msg != nullptr ? stream_->msg : "zlib gives no reason");
  }
  return done;
}

}  // namespace convoy::data
