#include "convoy/datasets/formats/gzip.h"

#define ZLIB_CONST  // next_in as a pointer to const
#include <zlib.h>

#include <algorithm>
#include <limits>

#include "convoy/kernels/base/check.h"

namespace convoy::data {

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
