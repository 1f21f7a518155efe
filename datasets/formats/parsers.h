// The file formats of data sets: gzip, tar.gz, IDX and batches of CIFAR. The parsers take untrusted
// bytes.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/datasets/dataset.h"
#include "convoy/engine/tensor/tensor.h"

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

/// Reads the members of a .tar.gz archive into memory, without unpacking it to disk: calls visit(path in the
/// archive, contents) for each regular file. Throws DataError if a file is larger
/// than `max_bytes`, if all files together are larger than `max_total` bytes, or if the archive is damaged,
/// truncated or not a tar file. Sizes are checked before the data is unpacked.
void for_each_member(const std::filesystem::path& archive, std::uint64_t max_bytes, std::uint64_t max_total,
                     const std::function<void(const std::string& path, const std::string& bytes)>& visit);

// ---- The IDX format of MNIST ----
//
// (LeCun, "The MNIST database"): big-endian magic number and sizes, then one byte per
// value.

/// Parses the contents of an IDX file, plain or gzip, and returns images u8 [N, rows, columns, 1]. Throws
/// DataError, which starts with `name`, if the file is damaged or not an IDX file of images.
Tensor parse_idx_images(std::string_view bytes, const std::string& name);
/// Parses the contents of an IDX file, plain or gzip, and returns labels i32 [N]. Throws DataError also if a
/// label is not below `classes`.
Tensor parse_idx_labels(std::string_view bytes, const std::string& name, int classes);

// ---- CIFAR-10 and CIFAR-100 ----
//
// The binary records in which they are distributed (Krizhevsky, "Learning multiple layers of features from
// tiny images", 2009).

inline constexpr std::int64_t kCifarSide = 32;
inline constexpr std::int64_t kCifarPixels = kCifarSide * kCifarSide;
inline constexpr std::int64_t kCifarImageBytes = 3 * kCifarPixels;  // the red, green and blue planes

/// Where the files of one of the two data sets have the labels. CIFAR-100 also has coarse labels, which are not read.
struct CifarLabels {
  int classes = 10;
  std::int64_t bytes = 1;  // before each image of a record; the last one is the label
};
inline constexpr CifarLabels kCifar10Labels{};
inline constexpr CifarLabels kCifar100Labels{100, 2};

/// Fills samples [begin, begin + count) of `set` from the contents of a batch file with `count` records.
/// Throws DataError, which starts with `name`, if the size or a label is wrong.
void parse_cifar_batch(std::string_view bytes, const std::string& name, std::int64_t begin,
                       std::int64_t count, const ImageSet& set, const CifarLabels& labels = kCifar10Labels);
/// Returns the class names of batches.meta.txt, one per line. Throws DataError, which starts with `name`,
/// unless there is one per class.
std::vector<std::string> parse_cifar_names(std::string_view bytes, const std::string& name,
                                           const CifarLabels& labels = kCifar10Labels);

}  // namespace convoy::data
