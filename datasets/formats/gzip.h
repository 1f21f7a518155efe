// A streaming gzip reader with bounded output.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace convoy::data {

/// Decompresses gzip data on demand, and never more than the caller requests. Data that is not gzip is
/// returned unchanged. The caller keeps the bytes and the name alive. Not thread-safe.
class GzipReader {
 public:
  GzipReader(std::string_view bytes, const std::string& name);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// Writes up to `count` bytes to `out` and returns their number, which is smaller only at the end. Throws
  /// DataError if the stream is damaged or truncated.
  std::size_t read(void* out, std::size_t count);
  /// Returns an upper bound of the decompressed size: the compression ratio of deflate is at most 1032.
  std::uint64_t max_output() const;

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;  // null: not gzip
  std::string_view bytes_;          // the rest of the input
  std::uint64_t input_size_;
  const std::string& name_;
};

}  // namespace convoy::data
