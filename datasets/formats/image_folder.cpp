#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <optional>

#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/class_directories.h"
#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/transforms/resize.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::data {
namespace fs = std::filesystem;
namespace {

constexpr int kMixedSize = 224;  // pixels; used if the sizes of the images differ and the caller gives none

/// The results of decoding all files.
struct Decoded {
  Tensor images;                    // u8 [files, H, W, 3]; rows of corrupt files are unspecified
  std::vector<std::string> errors;  // one per file; empty: decoded
  std::int64_t chosen_size = 0;     // DataSet::chosen_size
  std::int64_t resized = 0;         // images that have been scaled
  std::size_t corrupt() const {
    return static_cast<std::size_t>(
        std::count_if(errors.begin(), errors.end(), [](const std::string& error) { return !error.empty(); }));
  }
};

Pixels decode_file(const fs::path& file, std::int64_t side = 0) {
  return decode_rgb(read_file(file, kMaxImageFileBytes), file.string(), side);
}

/// Returns the size of the first image that can be decoded, or nothing if none can.
std::optional<ImageSize> first_size(const std::vector<fs::path>& files) {
  for (const fs::path& file : files) try {
      return decode_file(file).size;
    } catch (const DataError&) {
      continue;  // decode_all() reports the error
    }
  return std::nullopt;
}

/// Decodes every file to `size`. Returns nothing if `resize` is false and an image has another size.
std::optional<Decoded> decode_all(const ClassDirectories& directories, const std::string& name,
                                  ImageSize size, bool resize, int workers) {
  const auto count = static_cast<std::int64_t>(directories.files.size());
  Decoded decoded{.images = allocate_images(name, count, size.height, size.width, 3),
                  .errors = std::vector<std::string>(directories.files.size())};
  auto* out = decoded.images.view().as<std::uint8_t>();
  std::atomic<bool> sizes_differ = false;
  std::atomic<std::int64_t> resized = 0;
  const CpuStream stream({.threads = std::max(workers, 1)});
  parallel_for(stream, count, 1, [&](std::int64_t begin, std::int64_t end) {
    SquareResizer resizer(size.width);
    for (std::int64_t i = begin; i < end && !sizes_differ; ++i) {
      try {
        const Pixels pixels =
            decode_file(directories.files[static_cast<std::size_t>(i)], resize ? size.width : 0);
        std::uint8_t* target = out + i * size.height * size.width * 3;
        const auto [width, height] = pixels.size;
        if (width == size.width && height == size.height && !pixels.is_reduced)
          std::memcpy(target, pixels.rgb.data(), pixels.rgb.size());
        else if (resize) {
          resizer.run({pixels.rgb.data(), height, width, 3}, target);
          ++resized;
        } else
          sizes_differ = true;
      } catch (const std::exception& error) {  // including bad_alloc: no exception may leave parallel_for
        decoded.errors[static_cast<std::size_t>(i)] = error.what();
      }
    }
  });
  if (sizes_differ) return std::nullopt;
  decoded.resized = resized;
  return decoded;
}

Decoded decode_all(const ClassDirectories& directories, const std::string& name, const ReadOptions& options) {
  if (options.image_size == 0) {
    // In most data sets all images have the same size. Otherwise decode them again and resize them.
    if (const std::optional<ImageSize> size = first_size(directories.files))
      if (std::optional<Decoded> decoded = decode_all(directories, name, *size, false, options.workers))
        return *decoded;
  }
  const std::int64_t side = options.image_size > 0 ? options.image_size : kMixedSize;
  Decoded decoded = *decode_all(directories, name, {side, side}, true, options.workers);
  if (options.image_size == 0) decoded.chosen_size = side;
  return decoded;
}

void refuse_corrupt(const Decoded& decoded, const std::string& name) {
  constexpr int kNamed = 3;
  std::string text;
  int named = 0;
  for (const std::string& error : decoded.errors)
    if (!error.empty() && named++ < kNamed) text += "; " + error;
  fail<DataError>("{}: {} of {} images cannot be read (ReadOptions::skip_corrupt leaves them out){}{}", name,
                  decoded.corrupt(), decoded.errors.size(), text, named > kNamed ? "; …" : "");
}

/// Removes the rows and labels of corrupt images, keeping the order. Returns the number of training images
/// left.
std::size_t drop_corrupt(Decoded& decoded, std::vector<std::int32_t>& labels, std::size_t train_count) {
  auto* rows = decoded.images.view().as<std::uint8_t>();
  const std::size_t row_bytes = decoded.images.bytes() / decoded.errors.size();
  std::size_t kept = 0, kept_train = 0;
  for (std::size_t i = 0; i < decoded.errors.size(); ++i) {
    if (!decoded.errors[i].empty()) continue;
    if (kept != i) std::memcpy(rows + kept * row_bytes, rows + i * row_bytes, row_bytes);
    labels[kept++] = labels[i];
    if (i < train_count) ++kept_train;
  }
  labels.resize(kept);
  return kept_train;
}

}  // namespace

DataSet load_class_directories(const ClassDirectories& directories, const fs::path& directory,
                               const ReadOptions& options) {
  Decoded decoded = decode_all(directories, directory.string(), options);
  if (decoded.corrupt() > 0 && !options.skip_corrupt) refuse_corrupt(decoded, directory.string());
  std::vector<std::int32_t> labels = directories.labels;
  const std::size_t train_count = drop_corrupt(decoded, labels, directories.train_count);
  for (std::size_t label = 0; label < directories.classes.size(); ++label) {
    const auto end = labels.begin() + static_cast<std::ptrdiff_t>(train_count);
    if (std::find(labels.begin(), end, static_cast<std::int32_t>(label)) == end)
      fail<DataError>("{}: no training image of class {} can be read", directory.string(),
                      directories.classes[label]);
  }

  DataSet data;
  data.classes = directories.classes;
  const auto train = static_cast<std::int64_t>(train_count);
  const auto all = static_cast<std::int64_t>(labels.size());
  const Tensor all_labels = Tensor::from(labels, {all}, Device::cpu());
  data.train = {decoded.images.rows(0, train), all_labels.rows(0, train)};
  data.test = {decoded.images.rows(train, all), all_labels.rows(train, all)};
  for (const std::string& error : decoded.errors)
    if (!error.empty()) data.warnings.push_back("left out: " + error);
  if (directories.left_out.count() > 0) data.warnings.push_back(directories.left_out.text());
  data.chosen_size = decoded.chosen_size;
  const std::string scaled =
      fmt::format("{} of {} images scaled and cropped to {} x {} pixels", decoded.resized,
                  directories.files.size(), decoded.images.size(2), decoded.images.size(1));
  if (data.chosen_size > 0)
    data.warnings.push_back(fmt::format(
        "the sizes of the images differ ({}); ReadOptions::image_size sets another size", scaled));
  data.note = directory.string();
  if (decoded.resized > 0 && data.chosen_size == 0) data.note += fmt::format(" ({})", scaled);
  return data;
}

DataSet read_image_folder(const fs::path& directory, const ReadOptions& options) {
  check_read_options(options);
  const ClassDirectories directories = scan_class_directories(directory, options);
  DataSet data = load_class_directories(directories, directory, options);
  data.name = "folder";
  if (directories.is_split)
    data.note += fmt::format(" ({:.0f}% of each class for testing, drawn with seed {})",
                             options.test_fraction * 100, options.seed);
  return data;
}

}  // namespace convoy::data
