#include "datasets/class_folders.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <numeric>
#include <optional>

#include "datasets/files.h"
#include "kernels/random.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace fs = std::filesystem;
namespace {

std::string lower(std::string text) {
  for (char& letter : text)
    if (letter >= 'A' && letter <= 'Z') letter = static_cast<char>(letter - 'A' + 'a');
  return text;
}

bool is_jpeg_name(const fs::path& file) {
  const std::string extension = lower(file.extension().string());
  return extension == ".jpg" || extension == ".jpeg";
}

bool is_image_name(const fs::path& file) {
  const std::string extension = lower(file.extension().string());
  return is_jpeg_name(file) || extension == ".png" || extension == ".bmp";
}

std::vector<fs::path> folders_in(const fs::path& folder) {
  std::vector<fs::path> folders;
  for (const fs::directory_entry& entry : list_folder(folder))
    if (is_folder(entry.path())) folders.push_back(entry.path());
  return folders;
}

/// The folder of a split under the first of these names that there is, in any case, if it holds folders
/// itself: "train" with images in it is a class of trains.
std::optional<fs::path> find_split_folder(const fs::path& folder, const std::vector<std::string>& names) {
  const std::vector<fs::path> folders = folders_in(folder);
  for (const std::string& name : names)
    for (const fs::path& candidate : folders)
      if (lower(candidate.filename().string()) == name && !folders_in(candidate).empty()) return candidate;
  return std::nullopt;
}

std::optional<fs::path> find_train_folder(const fs::path& folder) {
  return find_split_folder(folder, {"train", "training"});
}
std::optional<fs::path> find_test_folder(const fs::path& folder) {
  return find_split_folder(folder, {"test", "testing", "val", "valid", "validation"});
}

void collect_images(const fs::path& folder, int depth, std::vector<fs::path>& files) {
  constexpr int kMostDepth = 16;  // links may form a circle
  if (depth > kMostDepth) fail<DataError>("{}: more than {} folders deep", folder.string(), kMostDepth);
  for (const fs::directory_entry& entry : list_folder(folder)) {
    if (is_folder(entry.path()))
      collect_images(entry.path(), depth + 1, files);
    else if (is_image_name(entry.path()) && is_file(entry.path()))
      files.push_back(entry.path());
  }
}

struct Classes {
  std::vector<std::string> names;
  std::vector<std::vector<fs::path>> files;
};

Classes scan_classes(const fs::path& folder) {
  Classes classes;
  for (const fs::path& class_folder : folders_in(folder)) {
    classes.names.push_back(class_folder.filename().string());
    collect_images(class_folder, 1, classes.files.emplace_back());
    if (classes.files.back().empty())
      fail<DataError>("{}: no .jpg, .png or .bmp file, expected the images of a class",
                      class_folder.string());
  }
  if (classes.names.empty())
    fail<DataError>("{}: no folders, expected one for each class with its images", folder.string());
  return classes;
}

void append(ClassFolders& to, std::vector<fs::path> files, std::size_t label) {
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

/// Which of `count` files of a class are for testing: the first of a Fisher-Yates shuffle.
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

ClassFolders split_classes(const fs::path& folder, Classes classes, const ReadOptions& options) {
  ClassFolders result;
  std::vector<std::vector<fs::path>> tests(classes.names.size());
  for (std::size_t label = 0; label < classes.names.size(); ++label) {
    std::vector<fs::path>& files = classes.files[label];
    if (files.size() < 2)
      fail<DataError>("{}: one image, expected at least 2 to split into training and test images",
                      (folder / classes.names[label]).string());
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

bool ClassFolders::all_jpeg() const { return std::all_of(files.begin(), files.end(), is_jpeg_name); }

bool has_split_folders(const fs::path& folder) {
  return is_folder(folder) && find_train_folder(folder) && find_test_folder(folder);
}

ClassFolders scan_class_folders(const fs::path& folder, const ReadOptions& options) {
  require_folder(folder);
  const std::optional<fs::path> train_folder = find_train_folder(folder);
  const std::optional<fs::path> test_folder = find_test_folder(folder);
  if (!train_folder && !test_folder) return split_classes(folder, scan_classes(folder), options);
  if (!train_folder || !test_folder)
    fail<DataError>(
        "{}: {}, expected both train and test folders, or the classes' own folders", folder.string(),
        train_folder ? "a train folder without a test folder" : "a test folder without a train folder");
  Classes train = scan_classes(*train_folder);
  Classes test = scan_classes(*test_folder);
  if (train.names != test.names)
    fail<DataError>("{}: train and test differ in their classes: missing in {}: {}; missing in {}: {}",
                    folder.string(), train_folder->filename().string(),
                    names_missing(train.names, test.names), test_folder->filename().string(),
                    names_missing(test.names, train.names));
  ClassFolders result;
  for (std::size_t label = 0; label < train.names.size(); ++label)
    append(result, std::move(train.files[label]), label);
  result.train_count = result.files.size();
  for (std::size_t label = 0; label < test.names.size(); ++label)
    append(result, std::move(test.files[label]), label);
  result.classes = std::move(train.names);
  return result;
}

}  // namespace convoy
