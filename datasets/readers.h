// Data sets by name. Every reader checks sizes before it trusts them and throws DataError: what was found,
// what was expected, in which file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "datasets/dataset.h"

namespace convoy {

struct ReadOptions {
  int image_size =
      0;  // resize to this square; 0: as they are (folders: the size that all images share, else 224)
  bool skip_corrupt = false;   // folders: leave out images that cannot be decoded (each named in warnings)
  double test_fraction = 0.2;  // folders without train/ and test/
  int workers = 2;             // decoding threads
  std::uint64_t seed = 1;      // of the split, and of generated sets
};

/// UsageError for values that make no sense. Every reader calls it.
void check_read_options(const ReadOptions& options);

/// From the binary archive (cifar-10-binary.tar.gz), the extracted cifar-10-batches-bin/*.bin, or
/// {train,test}/<class>/ folders of images; whichever of them, in this order, is under `folder` or
/// folder/cifar10.
DataSet read_cifar10(const std::filesystem::path& folder, const ReadOptions& options = {});
/// The four IDX files, plain or gzip, under `folder`, folder/mnist or folder/MNIST/raw.
DataSet read_mnist(const std::filesystem::path& folder, const ReadOptions& options = {});
/// train/<class>/ and test/<class>/ (also Train, Training, val, Test …), or <class>/ to be split. JPEG, PNG,
/// BMP; grey becomes three equal channels, alpha is composited on white; EXIF orientation is not applied.
/// Classes are the sorted folder names; images of deeper folders belong to the class above them.
DataSet read_image_folder(const std::filesystem::path& folder, const ReadOptions& options = {});

struct ShapesOptions {
  std::int64_t train = 10000;
  std::int64_t test = 2000;
  int size = 32;
  std::uint64_t seed = 1;
};
/// Ten classes of drawn figures (disc, ring, square, …) at random places, sizes, turns and colours over
/// noise: needs no file, and is hard enough that only a network that learns gets far above 10 %.
DataSet generate_shapes(const ShapesOptions& options = {});

/// One JPEG, PNG or BMP file of at most 64 megapixels as u8 [H, W, 3]; resized to a square of `size` where
/// size > 0 (short side scaled, centre cropped).
Tensor read_image(const std::filesystem::path& file, int size = 0);
/// The same from bytes in memory; `name` for messages.
Tensor decode_image(const std::string& bytes, const std::string& name, int size = 0);

}  // namespace convoy
