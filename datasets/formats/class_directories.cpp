#include "convoy/datasets/formats/class_directories.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>

#include "convoy/datasets/files.h"
#include "convoy/datasets/formats/readers.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/random.h"

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

}  // namespace convoy::data
