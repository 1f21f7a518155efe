// Gzip, bounded by the reader's own appetite: what a file claims or hides costs neither memory nor time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace convoy {

/// Inflates gzip as it is asked for, and never further; bytes that are not gzip pass through as they are.
class GzipReader {
 public:
  GzipReader(std::string_view bytes, const std::string& name);
  ~GzipReader();
  GzipReader(const GzipReader&) = delete;
  GzipReader& operator=(const GzipReader&) = delete;

  /// Up to `count` bytes; fewer only at the end. DataError where the stream is damaged or cut off.
  std::size_t read(void* out, std::size_t count);
  /// No more than this can come out of what went in: deflate shrinks to a 1032nd at best.
  std::uint64_t most_output() const;

 private:
  struct Stream;
  std::unique_ptr<Stream> stream_;  // null: not gzip
  std::string_view bytes_;          // what is left of the input
  std::uint64_t input_size_;
  const std::string& name_;
};

}  // namespace convoy
