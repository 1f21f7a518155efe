// The readers of all data sets. A reader checks every size before it uses it. It throws DataError with the
// file name, what was found and what was expected. Several threads may call these functions at once.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "convoy/datasets/cache/image_cache.h"
#include "convoy/datasets/dataset.h"
#include "convoy/datasets/download/download.h"

namespace convoy::data {

/// The options of all readers. A reader ignores those that do not apply to its format.
struct ReadOptions {
  /// Side of the square that images are resized to, in pixels. 0 keeps the original size; images in
  /// directories then keep the size that all of them share, and are resized to 224 with a warning if their
  /// sizes differ.
  int image_size = 0;
  /// Images in directories: leave out files that cannot be decoded, and add a warning for each of them. Shards: leave out
  /// those that are missing or incomplete.
  bool skip_corrupt = false;
  /// Fraction of the images of each class that is used for testing, for directories without train/ and test/.
  double test_fraction = 0.2;
  /// Images in directories: whether val/ next to train/ and test/ becomes DataSet::validation. If not, a warning
  /// names it.
  bool use_validation_directory = true;
  /// Number of decoding threads.
  int workers = 2;
  /// Seed of the split into training and test images, and of generated images.
  std::uint64_t seed = 1;
  /// Images in directories: the directory in which the decoded images are stored, in a file per data set and
  /// size. The next call with the same files maps that file into memory and decodes nothing
  /// (datasets/cache/image_cache.h). The images must then not be written. Empty: none is stored.
  std::filesystem::path image_cache = {};
  /// With `image_cache`: the ranks of this host that call the reader at the same time. Each decodes a share
  /// of the images.
  HostRanks host = {};
  /// With `image_cache`: called before a wait for another process that writes the same file. `holder` is its
  /// process ID, or 0 if unknown.
  std::function<void(std::int64_t holder)> waiting = {};
  /// Shards: the memory for those bytes of each split that are read ahead, or in use.
  std::uint64_t cache_bytes = std::uint64_t{1} << 30;
  /// Shards: whether the sizes of up to 512 shards are compared with the index. One rank of a job suffices. With
  /// skip_corrupt, the sizes of all are.
  bool checks_files = true;
  /// Shards on a web server: how often a request is tried.
  HttpOptions http = {};
};

/// Throws UsageError if an option is out of range. Every reader calls this function first.
void check_read_options(const ReadOptions& options);

/// The functions that find and download the files of a data set. Each reader's source file defines them next
/// to the names of the files.
struct DatasetFiles {
  /// Returns whether `directory` holds files of the data set, in any layout that the reader accepts.
  std::function<bool(const std::filesystem::path& directory)> are_in;
  /// Returns the names of the files that are_in() looks for, for error messages.
  std::function<std::string()> expected;
  /// Returns the official files with their mirrors.
  std::function<std::vector<Mirrors>()> official;
};
extern const DatasetFiles kCifar10Files;       // of read_cifar10()
extern const DatasetFiles kCifar100Files;      // of read_cifar100()
extern const DatasetFiles kMnistFiles;         // of read_mnist()
extern const DatasetFiles kFashionMnistFiles;  // of read_fashion_mnist()

/// Reads CIFAR-10 from `directory` or directory/cifar10. Each is searched for the extracted binary
/// batches (also in cifar-10-batches-bin/), then the archive, then train/CLASS/ and test/CLASS/ directories of
/// images. Throws DataError if there is none of them, or if the files are incomplete or damaged.
DataSet read_cifar10(const std::filesystem::path& directory, const ReadOptions& options = {});

/// Reads CIFAR-100 with its 100 fine labels from `directory` or directory/cifar100, in the same way: the extracted
/// binary batches (also in cifar-100-binary/) with the file of their class names, then the archive.
DataSet read_cifar100(const std::filesystem::path& directory, const ReadOptions& options = {});

/// Reads the four IDX files of MNIST, plain or gzip, from `directory`, directory/mnist, or where torchvision
/// stores them: directory/MNIST/raw or directory/raw. Throws DataError if there are none, if they are
/// incomplete or damaged, or if they are those of Fashion-MNIST.
DataSet read_mnist(const std::filesystem::path& directory, const ReadOptions& options = {});

/// Reads Fashion-MNIST from files of the same names and format, in `directory`, directory/fashion-mnist,
/// directory/FashionMNIST/raw or directory/raw. Throws DataError also if they are those of MNIST.
DataSet read_fashion_mnist(const std::filesystem::path& directory, const ReadOptions& options = {});

/// Reads the images of the formats in image_formats_text() from train/CLASS/ and test/CLASS/ (also Train,
/// Training, val, Test, …), or from CLASS/, which is then split. Next to train/ and test/, val/CLASS/ has the
/// validation images. Classes are the sorted directory names; images in subdirectories belong to the class
/// above them. Images are converted as decode_image() does. A warning counts everything else that the directory
/// holds: files of other types, hidden files and directories, dangling links, other directories. Throws
/// DataError if there is no such directory, if a class is empty, if there is one class whose directory contains
/// class directories, or if an image cannot be decoded (see ReadOptions::skip_corrupt).
DataSet read_image_folder(const std::filesystem::path& directory, const ReadOptions& options = {});

/// Reads index.json of shards that write_shards() has made (datasets/shards/shard_writer.h). `place` is their directory, a
/// URL, or that of index.json. The sets have a source, which reads and decodes an image each time that a batch has it.
/// Throws DataError if the index is missing or damaged, and if a shard is missing or incomplete (see checks_files, and
/// skip_corrupt, which leaves its samples out).
DataSet read_shards(const std::filesystem::path& place, const ReadOptions& options = {});

/// The size and the seed of the generated data set.
struct ShapesOptions {
  std::int64_t train = 10000;  // number of training images
  std::int64_t test = 2000;    // number of test images
  int size = 32;               // pixels per side
  std::uint64_t seed = 1;      // of the shapes and the noise
};

/// Generates ten classes of drawn shapes (disc, ring, square, …) at random positions, sizes, angles and
/// colors over noise. Needs no file, and is hard enough that only a network that learns exceeds 10 % accuracy
/// by far. Throws UsageError if an option is out of range.
DataSet generate_shapes(const ShapesOptions& options = {});

/// Returns the image formats that this build reads: "JPEG, PNG, BMP, WebP or HEIC". The last
/// two depend on libwebp and libheif.
std::string image_formats_text();
/// Returns whether the extension is that of a file of one of these formats, in lower or upper case.
bool is_image_name(const std::filesystem::path& file);

/// Reads one image file of at most 64 megapixels to u8 [H, W, 3]; see decode_image(). Throws DataError if the
/// file cannot be read or is damaged.
Tensor read_image(const std::filesystem::path& file, int size = 0);

/// Decodes one image of at most 64 megapixels, of a format in image_formats_text(), to u8 [H, W, 3]. If size
/// > 0, scales the short side to `size` and crops the center square; libjpeg-turbo first reduces a JPEG image
/// whose short side is at least 2, 4 or 8 times `size`. Gray becomes three equal channels, alpha is
/// composited on white, and a photograph is turned upright as its orientation says (EXIF data of JPEG, PNG and
/// WebP). Throws DataError, which starts with `name`, if the image is damaged.
Tensor decode_image(const std::string& bytes, const std::string& name, int size = 0);

}  // namespace convoy::data
