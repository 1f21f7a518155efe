#include "convoy/datasets/formats/class_directories.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <exception>
#include <functional>
#include <iterator>
#include <mutex>
#include <numeric>
#include <optional>
#include <utility>

#include "convoy/datasets/cache/image_cache.h"
#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/image/pixels.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/datasets/transforms/resize.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"
#include "convoy/kernels/base/random.h"
#include "convoy/kernels/runtime/parallel.h"

namespace convoy::data {
namespace fs = std::filesystem;
namespace {

bool is_jpeg_name(const fs::path& file) {
  const std::string extension = lower_case(file.extension().string());
  return extension == ".jpg" || extension == ".jpeg";
}

std::vector<fs::path> directories_in(const fs::path& directory) {
  std::vector<fs::path> directories;
  for (const fs::directory_entry& entry : list_directory(directory))
    if (is_existing_directory(entry.path())) directories.push_back(entry.path());
  return directories;
}

/// Returns the first subdirectory with one of these names (case-insensitive) that itself contains
/// directories. A directory "train" that contains only images is a class of trains.
std::optional<fs::path> find_split_directory(const fs::path& directory,
                                             const std::vector<std::string>& names) {
  const std::vector<fs::path> directories = directories_in(directory);
  for (const std::string& name : names)
    for (const fs::path& candidate : directories)
      if (lower_case(candidate.filename().string()) == name && !directories_in(candidate).empty())
        return candidate;
  return std::nullopt;
}

std::optional<fs::path> find_train_directory(const fs::path& directory) {
  return find_split_directory(directory, {"train", "training"});
}
std::optional<fs::path> find_test_directory(const fs::path& directory) {
  return find_split_directory(directory, {"test", "testing", "val", "valid", "validation"});
}

void collect_images(const fs::path& directory, int depth, std::vector<fs::path>& files,
                    LeftOutFiles& left_out) {
  constexpr int kMaxDepth = 16;  // links may form a circle
  if (depth > kMaxDepth) fail<DataError>("{}: more than {} directories deep", directory.string(), kMaxDepth);
  for (const fs::directory_entry& entry : list_directory(directory)) {
    if (is_existing_directory(entry.path()))
      collect_images(entry.path(), depth + 1, files, left_out);
    else if (!is_file(entry.path()))
      continue;
    else if (is_image_name(entry.path()))
      files.push_back(entry.path());
    else
      left_out.add(entry.path());
  }
}

struct Classes {
  std::vector<std::string> names;
  std::vector<std::vector<fs::path>> files;
};

Classes scan_classes(const fs::path& directory, LeftOutFiles& left_out) {
  Classes classes;
  for (const fs::path& class_directory : directories_in(directory)) {
    classes.names.push_back(class_directory.filename().string());
    collect_images(class_directory, 1, classes.files.emplace_back(), left_out);
    if (classes.files.back().empty())
      fail<DataError>("{}: no {} file, expected the images of a class", class_directory.string(),
                      image_formats_text());
  }
  if (classes.names.empty())
    fail<DataError>("{}: no directories, expected one per class", directory.string());
  return classes;
}

void append(ClassDirectories& to, std::vector<fs::path> files, std::size_t label) {
  to.labels.insert(to.labels.end(), files.size(), static_cast<std::int32_t>(label));
  std::move(files.begin(), files.end(), std::back_inserter(to.files));
}

std::string names_missing(const std::vector<std::string>& in, const std::vector<std::string>& of) {
  std::vector<std::string> missing;
  std::set_difference(of.begin(), of.end(), in.begin(), in.end(), std::back_inserter(missing));
  std::string text;
  for (const std::string& name : missing) text += (text.empty() ? "" : ", ") + name;
  return text.empty() ? "none" : text;
}

/// Selects the test files of a class with `count` files: the first elements of a Fisher-Yates shuffle.
std::vector<bool> draw_test_files(std::size_t count, double fraction, std::uint64_t seed, std::size_t label) {
  const auto wanted = static_cast<std::size_t>(std::llround(fraction * static_cast<double>(count)));
  const std::size_t test_count = std::clamp<std::size_t>(wanted, 1, count - 1);
  const Random random{seed, RandomPurpose::split, static_cast<std::uint32_t>(label)};
  std::vector<std::size_t> order(count);
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::vector<bool> is_test(count, false);
  for (std::size_t i = 0; i < test_count; ++i) {
    const std::uint32_t jump = to_below(random.words(i)[0], static_cast<std::uint32_t>(count - i));
    std::swap(order[i], order[i + jump]);
    is_test[order[i]] = true;
  }
  return is_test;
}

ClassDirectories split_classes(const fs::path& directory, const ReadOptions& options) {
  ClassDirectories result;
  result.is_split = true;
  Classes classes = scan_classes(directory, result.left_out);
  std::vector<std::vector<fs::path>> tests(classes.names.size());
  for (std::size_t label = 0; label < classes.names.size(); ++label) {
    std::vector<fs::path>& files = classes.files[label];
    if (files.size() < 2)
      fail<DataError>("{}: one image, expected at least 2 to split into training and test images",
                      (directory / classes.names[label]).string());
    const std::vector<bool> is_test =
        draw_test_files(files.size(), options.test_fraction, options.seed, label);
    std::vector<fs::path> train;
    for (std::size_t i = 0; i < files.size(); ++i)
      (is_test[i] ? tests[label] : train).push_back(std::move(files[i]));
    append(result, std::move(train), label);
  }
  result.train_count = result.files.size();
  for (std::size_t label = 0; label < tests.size(); ++label) append(result, std::move(tests[label]), label);
  result.classes = std::move(classes.names);
  return result;
}

}  // namespace

void LeftOutFiles::add(const fs::path& file) {
  ++by_extension_[lower_case(file.extension().string())];
  ++count_;
}

std::string LeftOutFiles::text() const {
  constexpr std::size_t kNamed = 5;
  std::vector<std::pair<std::string, std::int64_t>> types(by_extension_.begin(), by_extension_.end());
  std::stable_sort(types.begin(), types.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  std::string text =
      fmt::format("{} {} left out:", count_, count_ == 1 ? "file of another type" : "files of other types");
  for (std::size_t i = 0; i < std::min(kNamed, types.size()); ++i)
    text += fmt::format("{} {} {}", i == 0 ? "" : ",",
                        types[i].first.empty() ? "without extension" : types[i].first, types[i].second);
  return text + (types.size() > kNamed ? ", …" : "");
}

bool ClassDirectories::all_jpeg() const { return std::all_of(files.begin(), files.end(), is_jpeg_name); }

bool has_split_directories(const fs::path& directory) {
  return is_existing_directory(directory) && find_train_directory(directory) &&
         find_test_directory(directory);
}

ClassDirectories scan_class_directories(const fs::path& directory, const ReadOptions& options) {
  require_directory(directory);
  const std::optional<fs::path> train_directory = find_train_directory(directory);
  const std::optional<fs::path> test_directory = find_test_directory(directory);
  if (!train_directory && !test_directory) return split_classes(directory, options);
  if (!train_directory || !test_directory)
    fail<DataError>("{}: {}, expected train and test directories, or one directory per class",
                    directory.string(),
                    train_directory ? "a train directory without a test directory"
                                    : "a test directory without a train directory");
  ClassDirectories result;
  Classes train = scan_classes(*train_directory, result.left_out);
  Classes test = scan_classes(*test_directory, result.left_out);
  if (train.names != test.names)
    fail<DataError>("{}: train and test have different classes: missing in {}: {}; missing in {}: {}",
                    directory.string(), train_directory->filename().string(),
                    names_missing(train.names, test.names), test_directory->filename().string(),
                    names_missing(test.names, train.names));
  for (std::size_t label = 0; label < train.names.size(); ++label)
    append(result, std::move(train.files[label]), label);
  result.train_count = result.files.size();
  for (std::size_t label = 0; label < test.names.size(); ++label)
    append(result, std::move(test.files[label]), label);
  result.classes = std::move(train.names);
  return result;
}

namespace fs = std::filesystem;
namespace {

constexpr int kMixedSize = 224;  // pixels; used if the sizes of the images differ and the caller gives none

using Files = std::vector<fs::path>;

Pixels decode_file(const fs::path& file, std::int64_t side = 0) {
  return decode_rgb(read_file(file, kMaxImageFileBytes), file.string(), side);
}

/// Returns the size of the first image that can be decoded, or nothing if none can.
std::optional<ImageSize> first_size(const Files& files) {
  for (const fs::path& file : files) try {
      return decode_file(file).size;
    } catch (const DataError&) {
      continue;  // decode_range() reports the error
    }
  return std::nullopt;
}

/// Decodes files [first, last) to `size`, and stores image i in row i of `images`. The result has no images. Returns
/// nothing if `resize` is false and an image has another size.
std::optional<DecodedImages> decode_range(const Files& files, std::int64_t first, std::int64_t last,
                                          ImageSize size, bool resize, int workers, std::uint8_t* images) {
  DecodedImages decoded;
  std::mutex mutex;  // guards decoded.errors
  std::atomic<bool> sizes_differ = false;
  std::atomic<std::int64_t> resized = 0;
  const CpuStream stream({.threads = std::max(workers, 1)});
  parallel_for(stream, last - first, 1, [&](std::int64_t begin, std::int64_t end) {
    SquareResizer resizer(size.width);
    for (std::int64_t i = first + begin; i < first + end && !sizes_differ; ++i) {
      try {
        const Pixels pixels = decode_file(files[static_cast<std::size_t>(i)], resize ? size.width : 0);
        std::uint8_t* target = images + i * size.height * size.width * 3;
        const auto [width, height] = pixels.size;
        if (width == size.width && height == size.height && !pixels.is_reduced)
          std::memcpy(target, pixels.rgb.data(), pixels.rgb.size());
        else if (resize) {
          resizer.run({pixels.rgb.data(), height, width, 3}, target);
          ++resized;
        } else
          sizes_differ = true;
      } catch (const std::exception& error) {  // including bad_alloc: no exception may leave parallel_for
        const std::lock_guard lock(mutex);
        decoded.errors[i] = error.what();
      }
    }
  });
  if (sizes_differ) return std::nullopt;
  decoded.resized = resized;
  return decoded;
}

/// Decodes all files to `size`, or returns nothing, as decode_range() does.
using Decode = std::function<std::optional<DecodedImages>(ImageSize size, bool resize)>;

/// Decodes all files to the size that the options ask for.
DecodedImages decode_in_size(const Files& files, const ReadOptions& options, const Decode& decode) {
  if (options.image_size == 0) {
    // In most data sets all images have the same size. Otherwise decode them again and resize them.
    if (const std::optional<ImageSize> size = first_size(files))
      if (std::optional<DecodedImages> decoded = decode(*size, false)) return *std::move(decoded);
  }
  const std::int64_t side = options.image_size > 0 ? options.image_size : kMixedSize;
  DecodedImages decoded = *decode({side, side}, true);
  if (options.image_size == 0) decoded.chosen_size = side;
  return decoded;
}

DecodedImages decode_to_memory(const Files& files, const std::string& name, const ReadOptions& options) {
  const std::int64_t count = std::ssize(files);
  return decode_in_size(files, options, [&](ImageSize size, bool resize) {
    const Tensor images = allocate_images(name, count, size.height, size.width, 3);
    auto decoded =
        decode_range(files, 0, count, size, resize, options.workers, images.view().as<std::uint8_t>());
    if (decoded) decoded->images = images.rows(0, drop_failed(images.view(), decoded->errors));
    return decoded;
  });
}

/// Returns the text that determines the decoded images: the decoders, the size, and the files in their order.
std::string cache_key(const Files& files, const fs::path& directory, const ReadOptions& options) {
  std::string text =
      fmt::format("{}; {}; {} pixels\n", jpeg_decoder_text(), image_formats_text(), options.image_size);
  for (const fs::path& file : files) {
    std::error_code ignored;  // a file that cannot be accessed cannot be decoded either
    const auto bytes = static_cast<std::uint64_t>(fs::file_size(file, ignored));
    text += fmt::format("{} {} {}\n", file.lexically_relative(directory).string(), bytes,
                        fs::last_write_time(file, ignored).time_since_epoch().count());
  }
  return text;
}

/// Maps the images from the cache. If they are not there, decodes a share of the files and completes the cache with the
/// other ranks of this host. Sets `note` to a description of the cache, and adds a warning if it was made again.
DecodedImages decode_to_cache(const ClassDirectories& directories, const fs::path& directory,
                              const ReadOptions& options, std::string& note,
                              std::vector<std::string>& warnings) {
  const Files& files = directories.files;
  const std::int64_t count = std::ssize(files);
  const fs::path place = fs::absolute(directory).lexically_normal();
  const std::string split =
      directories.is_split ? fmt::format("{} {}", options.seed, options.test_fraction) : "";
  // One file per data set and size, which is replaced if the data set changes.
  const fs::path path = options.image_cache /
                        fmt::format("{}-{}-{:.8}.safetensors",
                                    (place.has_filename() ? place : place.parent_path()).filename().string(),
                                    options.image_size, io::hash_bytes(place.string() + '\n' + split));
  ImageCache cache(path, io::hash_bytes(cache_key(files, directory, options)), options.host, options.waiting);
  note = fmt::format("image cache {}", path.string());
  if (std::optional<DecodedImages> found = cache.open()) return *std::move(found);
  if (!cache.problem().empty()) warnings.push_back(cache.problem() + "; the images were decoded again");
  return cache.finish(decode_in_size(files, options, [&](ImageSize size, bool resize) {
    std::uint8_t* const images = cache.create({count, size.height, size.width, 3});
    return cache.gather(
        decode_range(files, cache.begin(count), cache.end(count), size, resize, options.workers, images));
  }));
}

void refuse_corrupt(const DecodedImages& decoded, std::size_t count, const std::string& name) {
  constexpr int kNamed = 3;
  std::string text;
  int named = 0;
  for (const auto& [file, error] : decoded.errors)
    if (named++ < kNamed) text += "; " + error;
  throw ErrorWithRemedy<DataError>(
      fmt::format("{}: {} of {} images cannot be read{}{}", name, decoded.errors.size(), count, text,
                  named > kNamed ? "; …" : ""),
      "set ReadOptions::skip_corrupt to leave them out");
}

}  // namespace

DataSet load_class_directories(const ClassDirectories& directories, const fs::path& directory,
                               const ReadOptions& options) {
  const std::size_t count = directories.files.size();
  DataSet data;
  std::string cache;  // a description
  const DecodedImages decoded = options.image_cache.empty()
                                    ? decode_to_memory(directories.files, directory.string(), options)
                                    : decode_to_cache(directories, directory, options, cache, data.warnings);
  if (!decoded.errors.empty() && !options.skip_corrupt) refuse_corrupt(decoded, count, directory.string());
  std::vector<std::int32_t> labels;
  std::int64_t train = 0;
  std::vector<bool> has_images(directories.classes.size());  // for training
  for (std::size_t i = 0; i < count; ++i) {
    if (decoded.errors.contains(static_cast<std::int64_t>(i))) continue;
    labels.push_back(directories.labels[i]);
    if (i >= directories.train_count) continue;
    ++train;
    has_images[static_cast<std::size_t>(labels.back())] = true;
  }
  for (std::size_t label = 0; label < has_images.size(); ++label)
    if (!has_images[label])
      fail<DataError>("{}: no training image of class {} can be read", directory.string(),
                      directories.classes[label]);

  data.classes = directories.classes;
  const std::int64_t all = std::ssize(labels);
  const Tensor all_labels = Tensor::from(labels, {all}, Device::cpu());
  data.train = {decoded.images.rows(0, train), all_labels.rows(0, train)};
  data.test = {decoded.images.rows(train, all), all_labels.rows(train, all)};
  for (const auto& [file, error] : decoded.errors) data.warnings.push_back("left out: " + error);
  if (directories.left_out.count() > 0) data.warnings.push_back(directories.left_out.text());
  data.chosen_size = decoded.chosen_size;
  const std::string scaled =
      fmt::format("{} of {} images scaled and cropped to {} x {} pixels", decoded.resized, count,
                  decoded.images.size(2), decoded.images.size(1));
  if (data.chosen_size > 0)
    data.warnings.push_back(
        fmt::format("the sizes of the images differ ({}); image_size sets another size", scaled));
  data.note = directory.string();
  if (decoded.resized > 0 && data.chosen_size == 0) data.note += fmt::format(" ({})", scaled);
  if (!cache.empty()) data.note += ", " + cache;
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
