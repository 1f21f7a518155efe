#include "convoy/datasets/formats/class_directories.h"

#include <algorithm>
#include <array>
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

using Entries = std::vector<fs::directory_entry>;

/// Returns whether a file or directory is hidden by its name, or is one that systems add: archives of macOS,
/// thumbnails of Synology, the bins of Windows, and what fsck has found.
bool is_hidden(const std::string& name) {
  const auto known = {"__MACOSX", "@eaDir", "$RECYCLE.BIN", "System Volume Information", "lost+found"};
  return name.starts_with('.') || std::ranges::find(known, name) != known.end();
}

/// Returns the files and directories of a directory, sorted, and counts its other entries in `left_out`.
Entries visit(const fs::path& directory, LeftOut& left_out) {
  Entries entries = list_directory(directory);
  std::erase_if(entries, [&](const fs::directory_entry& entry) {
    const fs::path& path = entry.path();
    std::error_code ignored;
    if (is_hidden(path.filename().string()))
      left_out.add("hidden files and directories", path.string());
    else if (is_existing_directory(entry) || is_file(entry))
      return false;
    else if (fs::is_symlink(path, ignored) && !fs::exists(path, ignored))
      left_out.add("dangling links", path.string() + " -> " + fs::read_symlink(path, ignored).string());
    else
      left_out.add("entries that are no files and no directories", path.string());
    return true;
  });
  return entries;
}

std::vector<fs::path> directories_of(const Entries& entries) {
  std::vector<fs::path> directories;
  for (const fs::directory_entry& entry : entries)
    if (is_existing_directory(entry)) directories.push_back(entry.path());
  return directories;
}

std::vector<fs::path> directories_in(const fs::path& directory) {
  LeftOut ignored;  // counted when the directory is read
  return directories_of(visit(directory, ignored));
}

void add_other_type(LeftOut& left_out, const fs::path& file) {
  std::string extension = lower_case(file.extension().string());
  if (extension == ".heic" || extension == ".heif") extension += ", which needs a build with libheif:";
  left_out.add("files of other types", extension.empty() ? "without extension" : extension, /*counts=*/true);
}

/// Counts a file that is in no class directory.
void count_file(const fs::path& file, LeftOut& left_out) {
  if (!is_image_name(file)) return add_other_type(left_out, file);
  left_out.add("images outside the class directories", file.string());
}

/// Returns the first of the directories with one of these names (case-insensitive) that itself contains
/// directories. A directory "train" that contains only images is a class of trains.
std::optional<fs::path> find_split_directory(const std::vector<fs::path>& directories,
                                             const std::vector<std::string>& names) {
  for (const std::string& name : names)
    for (const fs::path& candidate : directories)
      if (lower_case(candidate.filename().string()) == name && !directories_in(candidate).empty())
        return candidate;
  return std::nullopt;
}

const std::vector<std::string> kTrainNames = {"train", "training"},
                               kTestNames = {"test", "testing", "val", "valid", "validation"};

void collect_images(const fs::path& directory, int depth, std::vector<fs::path>& files, LeftOut& left_out) {
  constexpr int kMaxDepth = 16;  // links may form a circle
  if (depth > kMaxDepth) fail<DataError>("{}: more than {} directories deep", directory.string(), kMaxDepth);
  for (const fs::directory_entry& entry : visit(directory, left_out)) {
    if (is_existing_directory(entry))
      collect_images(entry.path(), depth + 1, files, left_out);
    else if (is_image_name(entry.path()))
      files.push_back(entry.path());
    else
      add_other_type(left_out, entry.path());
  }
}

/// Throws DataError if the images of the only class are in several directories, like those of classes, and none is
/// above these.
void refuse_nested(const fs::path& directory, const std::vector<fs::path>& files, bool is_root) {
  fs::path inner = files.front().parent_path();  // the directory that contains all of them
  const auto is_below = [&](const fs::path& file) { return *file.lexically_relative(inner).begin() != ".."; };
  while (!std::ranges::all_of(files, is_below)) inner = inner.parent_path();
  std::vector<std::string> names;
  for (const fs::path& file : files) {
    if (file.parent_path() == inner) return;
    const std::string name = file.lexically_relative(inner).begin()->string();
    if (names.empty() || names.back() != name) names.push_back(name);
  }
  std::string place = inner.lexically_proximate(fs::current_path()).string();
  if (place.starts_with("..")) place = inner.string();
  throw ErrorWithRemedy<DataError>(
      fmt::format("{}: 1 class ({}), which itself has directories {}", directory.string(),
                  inner.lexically_relative(directory).string(), listed(names)),
      is_root ? fmt::format("did you mean the directory {}?", place) : "expected one directory per class");
}

struct Classes {
  std::vector<std::string> names;
  std::vector<std::vector<fs::path>> files;
};

/// Finds the classes among the entries of a directory. `is_root`: it is the directory of the data set.
Classes scan_classes(const fs::path& directory, const Entries& entries, bool is_root, LeftOut& left_out) {
  const auto also = [&] { return left_out.empty() ? "" : "; " + left_out.text(); };
  Classes classes;
  for (const fs::directory_entry& entry : entries) {
    const fs::path& path = entry.path();
    if (!is_existing_directory(entry)) {
      count_file(path, left_out);
      continue;
    }
    classes.names.push_back(path.filename().string());
    collect_images(path, 1, classes.files.emplace_back(), left_out);
    if (classes.files.back().empty())
      fail<DataError>("{}: no {} file, expected the images of a class{}", path.string(), image_formats_text(),
                      also());
  }
  if (classes.names.empty())
    fail<DataError>("{}: no directories, expected one per class{}", directory.string(), also());
  if (classes.names.size() == 1) refuse_nested(directory, classes.files.front(), is_root);
  return classes;
}

void append(ClassDirectories& to, std::vector<fs::path> files, std::size_t label) {
  to.labels.insert(to.labels.end(), files.size(), static_cast<std::int32_t>(label));
  std::move(files.begin(), files.end(), std::back_inserter(to.files));
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

ClassDirectories split_classes(const fs::path& directory, const Entries& entries, const ReadOptions& options,
                               ClassDirectories result) {
  result.is_split = true;
  Classes classes = scan_classes(directory, entries, /*is_root=*/true, result.left_out);
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
  result.test_count = result.files.size() - result.train_count;
  result.classes = std::move(classes.names);
  return result;
}

/// Appends the files of a split, whose classes must be those of the training files. Returns the number of all files.
std::size_t append_split(ClassDirectories& to, const fs::path& train, const fs::path& directory) {
  Classes classes = scan_classes(directory, visit(directory, to.left_out), /*is_root=*/false, to.left_out);
  if (directory == train) to.classes = classes.names;
  if (classes.names != to.classes)
    fail<DataError>("{}: {} and {} have different classes: missing in {}: {}; missing in {}: {}",
                    directory.parent_path().string(), train.filename().string(),
                    directory.filename().string(), train.filename().string(),
                    names_missing(to.classes, classes.names), directory.filename().string(),
                    names_missing(classes.names, to.classes));
  for (std::size_t label = 0; label < classes.names.size(); ++label)
    append(to, std::move(classes.files[label]), label);
  return to.files.size();
}

}  // namespace

void LeftOut::add(const std::string& kind, const std::string& example, bool counts) {
  constexpr std::size_t kMaxExamples = 6;  // one more than are shown
  Group& group = groups_[kind];
  ++group.count;
  if (counts)
    ++group.examples[example];
  else if (group.examples.size() < kMaxExamples)
    group.examples[example] = 0;
}

std::string LeftOut::text() const {
  std::string text;
  for (const auto& [kind, group] : groups_) {
    std::vector<std::pair<std::string, std::int64_t>> examples(group.examples.begin(), group.examples.end());
    std::ranges::stable_sort(examples, [](const auto& a, const auto& b) { return a.second > b.second; });
    std::vector<std::string> shown;
    for (const auto& [example, count] : examples)
      shown.push_back(count > 0 ? fmt::format("{} {}", example, count) : example);
    text +=
        fmt::format("{}{}: {} ({})", text.empty() ? "left out: " : "; ", kind, group.count, listed(shown));
  }
  return text;
}

std::string names_missing(std::vector<std::string> in, std::vector<std::string> of) {
  std::ranges::sort(in);
  std::ranges::sort(of);
  std::vector<std::string> missing;
  std::set_difference(of.begin(), of.end(), in.begin(), in.end(), std::back_inserter(missing));
  return missing.empty() ? "none" : listed(missing);
}

std::vector<fs::path> find_images(const fs::path& directory, LeftOut& left_out) {
  std::vector<fs::path> files;
  collect_images(directory, 0, files, left_out);
  return files;
}

std::string list_files(const std::vector<fs::path>& files, const fs::path& directory) {
  std::string text;
  for (const fs::path& file : files) {
    std::error_code ignored;  // a file that cannot be accessed cannot be decoded either
    const auto bytes = static_cast<std::uint64_t>(fs::file_size(file, ignored));
    text += fmt::format("{} {} {}\n", file.lexically_relative(directory).string(), bytes,
                        fs::last_write_time(file, ignored).time_since_epoch().count());
  }
  return text;
}

bool ClassDirectories::all_jpeg() const { return std::ranges::all_of(files, is_jpeg_name); }

bool has_split_directories(const fs::path& directory) {
  if (!is_existing_directory(directory)) return false;
  const std::vector<fs::path> directories = directories_in(directory);
  return find_split_directory(directories, kTrainNames) && find_split_directory(directories, kTestNames);
}

ClassDirectories scan_class_directories(const fs::path& directory, const ReadOptions& options) {
  require_directory(directory);
  ClassDirectories result;
  const Entries entries = visit(directory, result.left_out);
  std::vector<fs::path> others = directories_of(entries);
  const std::optional<fs::path> train = find_split_directory(others, kTrainNames),
                                test = find_split_directory(others, kTestNames);
  if (!train && !test) return split_classes(directory, entries, options, std::move(result));
  if (!train || !test)
    fail<DataError>(
        "{}: {}, expected train and test directories, or one directory per class", directory.string(),
        train ? "a train directory without a test directory" : "a test directory without a train directory");
  std::erase_if(others, [&](const fs::path& each) { return each == *train || each == *test; });
  std::optional<fs::path> validation;
  if (options.use_validation_directory)
    validation = find_split_directory(others, {"val", "valid", "validation"});
  for (const fs::path& other : others)
    if (other != validation)
      result.left_out.add("other directories", fmt::format("{} with {} images", other.string(),
                                                           find_images(other, result.left_out).size()));
  for (const fs::directory_entry& entry : entries)
    if (is_file(entry)) count_file(entry.path(), result.left_out);
  result.train_count = append_split(result, *train, *train);
  result.test_count = append_split(result, *train, *test) - result.train_count;
  if (validation) append_split(result, *train, *validation);
  return result;
}

namespace {

// Part of the cache's key. Higher since the orientation of PNG and WebP and CMYK without a marker are read.
constexpr int kDecoding = 2;
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
  std::mutex mutex;  // guards decoded.errors and device_error
  std::exception_ptr device_error;
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
        if (dynamic_cast<const StorageError*>(&error) != nullptr) device_error = std::current_exception();
        decoded.errors[i] = error.what();
      }
    }
  });
  if (device_error) std::rethrow_exception(device_error);  // the image is not corrupt
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
  // What determines the decoded images: the decoders, the size, and the files in their order.
  const std::string key = fmt::format("decoding {}; {}; {}; {} pixels\n", kDecoding, jpeg_decoder_text(),
                                      image_formats_text(), options.image_size) +
                          list_files(files, directory);
  ImageCache cache(path, io::hash_bytes(key), options.host, options.waiting);
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
  std::vector<std::string> texts;
  for (const auto& [file, error] : decoded.errors) texts.push_back(error);
  throw ErrorWithRemedy<DataError>(fmt::format("{}: {} of {} images cannot be read; {}", name, texts.size(),
                                               count, listed(texts, 3, "; ")),
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
  const std::size_t test_begin = directories.train_count, test_end = test_begin + directories.test_count;
  std::vector<std::int32_t> labels;
  std::array<ImageSet, 3> splits;                            // for training, for testing, for validation
  std::vector<bool> has_images(directories.classes.size());  // for training
  for (std::size_t i = 0; i < count; ++i) {
    if (decoded.errors.contains(static_cast<std::int64_t>(i))) continue;
    labels.push_back(directories.labels[i]);
    const std::size_t split = i < test_begin ? 0 : i < test_end ? 1 : 2;
    splits[split].files.push_back(directories.files[i].lexically_relative(directory).string());
    if (split == 0) has_images[static_cast<std::size_t>(labels.back())] = true;
  }
  for (std::size_t label = 0; label < has_images.size(); ++label)
    if (!has_images[label])
      fail<DataError>("{}: no training image of class {} can be read", directory.string(),
                      directories.classes[label]);

  data.classes = directories.classes;
  const Tensor all_labels = Tensor::from(labels, {std::ssize(labels)}, Device::cpu());
  std::int64_t begin = 0;
  for (ImageSet& split : splits) {
    const std::int64_t end = begin + std::ssize(split.files);
    split.images = decoded.images.rows(begin, end);
    split.labels = all_labels.rows(begin, end);
    split.decode = [directory](const std::string& file, std::int64_t side) {
      Pixels pixels = decode_file(directory / file, side);
      return OriginalImage{pixels.size.height, pixels.size.width, std::move(pixels.rgb)};
    };
    begin = end;
  }
  data.train = std::move(splits[0]);
  data.test = std::move(splits[1]);
  data.validation = std::move(splits[2]);
  for (const auto& [file, error] : decoded.errors) data.warnings.push_back("left out: " + error);
  if (!directories.left_out.empty()) data.warnings.push_back(directories.left_out.text());
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
