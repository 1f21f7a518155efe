// A data set in memory: u8 images of one size with their labels. Several threads may read a data set.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "convoy/engine/tensor/tensor.h"

namespace convoy::data {

/// An image as its file has it.
struct OriginalImage {
  std::int64_t height = 0;           // pixels
  std::int64_t width = 0;            // pixels
  std::vector<std::uint8_t> pixels;  // RGB, [height, width, 3]
};

/// The mean and standard deviation of each channel, for pixel values scaled to [0, 1].
struct ChannelStatistics {
  std::array<float, 4> mean{};  // 0 for channels that the images do not have
  std::array<float, 4> std{};   // standard deviation; 0 for channels that the images do not have
};

/// Images that are not in memory: they are read and decoded each time that a batch has them. Several threads may call all
/// functions, which throw DataError if an image is missing or damaged, and StorageError if its device or server fails.
class ImageSource {
 public:
  /// What is known without reading an image.
  struct About {
    Shape images;                            // [N, H, W, 3]: their number, and their shape in batches
    std::int64_t block = 1;                  // consecutive images that are read as a whole
    std::vector<std::int64_t> class_counts;  // in label order
    ChannelStatistics statistics;            // of the original images
    std::string hash;                        // of all images and labels
  };
  virtual ~ImageSource() = default;
  ImageSource(const ImageSource&) = delete;
  ImageSource& operator=(const ImageSource&) = delete;

  /// Returns what is known of all images.
  const About& about() const { return about_; }
  /// Returns the label of image `row`. Blocks until its block has been read.
  virtual std::int32_t label(std::int64_t row) const = 0;
  /// Returns the name of the file of image `row`. Blocks likewise.
  virtual std::string file(std::int64_t row) const = 0;
  /// Decodes image `row`. Its sides may be divided by a whole number if the short one still has `side` pixels; 0: they are
  /// not. Blocks likewise.
  virtual OriginalImage decode(std::int64_t row, std::int64_t side) const = 0;
  /// Starts to read the blocks of these images while the step `now` begins, because a step `later` needs them. Does not
  /// block. Steps are counted from the first one of all epochs.
  virtual void read_ahead(const std::vector<std::int64_t>& rows, std::int64_t now,
                          std::int64_t later) const = 0;

 protected:
  /// Creates a source of these images.
  explicit ImageSource(About about) : about_(std::move(about)) {}

 private:
  About about_;
};

/// One split of a data set. Images are decoded and resized once, when the data set is read, unless it has a source.
struct ImageSet {
  Tensor images;  // u8 [N, H, W, C], CPU
  Tensor labels;  // i32 [N]
  /// The file of each image, relative to the directory of the data set. Empty if images have no files of their
  /// own.
  std::vector<std::string> files = {};
  /// Decodes one of `files`, for augmentations of the original image. Its sides may be divided by a whole number if the
  /// short one still has `side` pixels; 0: they are not. Several threads may call it. Throws DataError if the file
  /// cannot be read. Empty if `files` is.
  std::function<OriginalImage(const std::string& file, std::int64_t side)> decode = {};
  /// The images and labels if they are not in memory; all other members are then empty.
  std::shared_ptr<const ImageSource> source = {};

  /// Returns the number of images; 0 if there are none.
  std::int64_t size() const { return source || images.defined() ? shape()[0] : 0; }
  /// Returns [N, H, W, C] of the images.
  const Shape& shape() const { return source ? source->about().images : images.shape(); }
  /// Returns the file of image `row`, or "" if it has none of its own. May block, as ImageSource::file() does.
  std::string file(std::int64_t row) const;
  /// Decodes image `row` as it is before any resizing. `side` is that of ImageSource::decode(). Requires `decode` or
  /// `source`, and throws what they throw.
  OriginalImage original(std::int64_t row, std::int64_t side) const;
};

/// A named data set with its training and test images.
struct DataSet {
  std::string name;                  // "cifar10"; stored in logs and checkpoints
  std::vector<std::string> classes;  // names in label order
  ImageSet train;                    // the training images
  ImageSet test;                     // the test images
  /// The images for decisions during a training: those of a directory val/ next to train/ and test/, or
  /// training images that a program holds out. Empty without them.
  ImageSet validation = {};
  std::string note;                   // the origin in one line: "CIFAR-10 (JPEG) from data/cifar10"
  std::vector<std::string> warnings;  // for example one per skipped corrupt image, with its file name
  /// The side in pixels of the squares to which images of different sizes were resized, because
  /// ReadOptions::image_size was 0; 0 if they have one size, or the caller has given one.
  std::int64_t chosen_size = 0;

  /// Returns the shape [H, W, C] of every image. Throws UsageError if there are no training images.
  Shape image_shape() const;
  /// Returns the images by which a training compares its checkpoints: the validation images, or the test
  /// images if there are none.
  const ImageSet& evaluated() const { return validation.size() > 0 ? validation : test; }
};

/// Returns the number of images of each of `classes` classes, in label order.
std::vector<std::int64_t> class_counts(const ImageSet& set, std::size_t classes);

/// Copies the images with these numbers and their labels, in this order, to memory.
ImageSet select(const ImageSet& set, const std::vector<std::int32_t>& rows);

/// The exact sums of the values of each channel, and of their squares.
struct ChannelSums {
  std::array<std::uint64_t, 4> of_values{};   ///< of each channel
  std::array<std::uint64_t, 4> of_squares{};  ///< of each channel
  std::uint64_t pixels = 0;                   ///< of each channel

  /// Adds `pixels` pixels of 1 to 4 channels.
  void add(const std::uint8_t* values, std::int64_t pixels, std::size_t channels);
  /// Adds other sums. Throws DataError if a sum exceeds 2^64, as it can with more than 2.8e14 pixels.
  void add(const ChannelSums& sums);
  /// Returns the statistics of the pixels; requires at least one. They are exact up to the final rounding.
  ChannelStatistics statistics() const;
};

/// Computes the statistics of all pixels of `set`, or returns those of its source. The result is exact up to the final
/// rounding. Throws UsageError if the set is empty or has more than 4 channels.
ChannelStatistics channel_statistics(const ImageSet& set);

/// The address of one copy of a file on a web server, with the checksum that its download must have. Mirrors are further RemoteFiles with the same name and checksum.
struct RemoteFile {
  std::string url;   // http or https
  std::string name;  // file name in the target directory
  std::string md5;   // 32 hexadecimal digits; empty: the caller verifies the contents
};

/// The mirrors of one file, in the order in which they are tried. All have the same name and checksum.
using Mirrors = std::vector<RemoteFile>;

}  // namespace convoy::data
