#include "convoy/datasets/formats/cifar10_batch.h"

#include <sstream>

#include "convoy/datasets/formats/pickle.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

using Kind = PickledValue::Kind;

/// Stores an image, which begins with its red plane, and its label as sample `index` of `set`. `record` is
/// its number in the file `name`.
void store_sample(const ImageSet& set, std::int64_t index, std::int64_t label, const char* planes,
                  const std::string& name, std::int64_t record) {
  if (label < 0 || label >= kCifarClasses)
    fail<DataError>("{}: label {} of record {}, expected 0 to {}", name, label, record, kCifarClasses - 1);
  set.labels.view().as<std::int32_t>()[index] = static_cast<std::int32_t>(label);
  auto* const pixels = set.images.view().as<std::uint8_t>() + index * kCifarPixels * 3;
  for (std::int64_t pixel = 0; pixel < kCifarPixels; ++pixel)
    for (std::int64_t c = 0; c < 3; ++c)
      pixels[pixel * 3 + c] = static_cast<std::uint8_t>(planes[c * kCifarPixels + pixel]);
}

/// Returns the items of the value `key` of a pickled dictionary. Throws DataError unless it is a `kind`.
const std::vector<PickledValue>& pickled_items(const PickledValue& dictionary, std::string_view key,
                                               PickledValue::Kind kind, std::string_view expected,
                                               const std::string& name) {
  const PickledValue* const value = dictionary.find(key);
  if (value == nullptr) fail<DataError>("{}: found no '{}', expected {}", name, key, expected);
  if (value->kind != kind)
    fail<DataError>("{}: found '{}' of another type, expected {}", name, key, expected);
  return *value->items;
}

std::vector<std::string> checked_names(std::vector<std::string> names, const std::string& name) {
  if (names.size() != static_cast<std::size_t>(kCifarClasses))
    fail<DataError>("{}: {} class names, expected {}", name, names.size(), kCifarClasses);
  return names;
}

}  // namespace

void parse_cifar10_batch(std::string_view bytes, const std::string& name, std::int64_t begin,
                         std::int64_t count, const ImageSet& set) {
  const auto expected = static_cast<std::size_t>(count * kCifarRecordBytes);
  if (bytes.size() != expected)
    fail<DataError>("{}: {} bytes, expected {} ({} records of {} bytes)", name, bytes.size(), expected, count,
                    kCifarRecordBytes);
  const char* record = bytes.data();
  for (std::int64_t i = 0; i < count; ++i, record += kCifarRecordBytes)
    store_sample(set, begin + i, static_cast<std::uint8_t>(record[0]), record + 1, name, i);
}

void parse_cifar10_pickle(std::string_view bytes, const std::string& name, std::int64_t begin,
                          std::int64_t count, const ImageSet& set) {
  const PickledValue dictionary = parse_pickle(bytes, name);
  constexpr std::int64_t kValues = 3 * kCifarPixels;
  const auto& images = pickled_items(dictionary, "data", Kind::array, "an array of images", name);
  std::vector<std::int64_t> shape;
  for (std::size_t axis = 0; axis + 1 < images.size(); ++axis) shape.push_back(images[axis].number);
  if (shape != std::vector{count, kValues})
    fail<DataError>("{}: found 'data' of shape [{}], expected [{}, {}]", name, fmt::join(shape, ", "), count,
                    kValues);
  const auto& labels = pickled_items(dictionary, "labels", Kind::list, "a list of labels", name);
  if (std::ssize(labels) != count)
    fail<DataError>("{}: {} labels, expected one for each of the {} images", name, labels.size(), count);
  for (std::int64_t i = 0; i < count; ++i) {
    const PickledValue& label = labels[static_cast<std::size_t>(i)];
    if (label.kind != Kind::number)
      fail<DataError>("{}: the label of record {} is a text, expected a number", name, i);
    store_sample(set, begin + i, label.number, images.back().text.data() + i * kValues, name, i);
  }
}

std::vector<std::string> parse_cifar10_names(std::string_view bytes, const std::string& name) {
  std::istringstream lines{std::string(bytes)};
  std::vector<std::string> names;
  for (std::string line; std::getline(lines, line);) {
    while (!line.empty() && (line.back() == '\r' || line.back() == ' ')) line.pop_back();
    if (!line.empty()) names.push_back(line);
  }
  return checked_names(std::move(names), name);
}

std::vector<std::string> parse_cifar10_pickled_names(std::string_view bytes, const std::string& name) {
  const PickledValue dictionary = parse_pickle(bytes, name);
  std::vector<std::string> names;
  for (const PickledValue& item :
       pickled_items(dictionary, "label_names", Kind::list, "a list of class names", name)) {
    if (item.kind != Kind::text) fail<DataError>("{}: a class name is a number, expected a text", name);
    names.emplace_back(item.text);
  }
  return checked_names(std::move(names), name);
}

}  // namespace convoy::data
