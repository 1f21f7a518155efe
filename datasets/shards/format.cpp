#include "convoy/datasets/shards/format.h"

#include <algorithm>
#include <bit>
#include <nlohmann/json.hpp>
#include <numeric>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"

namespace convoy::data {

static_assert(std::endian::native == std::endian::little, "the index is little-endian");

CONVOY_DEFINE_JSON(ShardSplit, name, shards, samples, bytes, class_counts, mean, std, hash)
CONVOY_DEFINE_JSON(ShardIndex, format, source, classes, splits)

namespace {

constexpr std::size_t kMaxPath = 100, kSumAt = 148, kSumBytes = 8;  // in the header of a member

void check_split(const ShardSplit& split, std::size_t classes, const std::string& name) {
  const auto in_range = [](std::int64_t count) { return 0 <= count && count < std::int64_t{1} << 31; };
  const auto is_fraction = [](float value) { return 0 <= value && value <= 1; };  // and no NaN
  const std::vector<std::int64_t>& counts = split.class_counts;
  // A shard whose images could not be decoded has no sample, but the end of a tar file.
  const bool is_valid =
      in_range(split.samples) && in_range(split.shards) && 1 <= split.samples && 1 <= split.shards &&
      split.bytes / (2 * kSector) >= static_cast<std::uint64_t>(split.shards) &&
      split.bytes / kSampleHeaderBytes >= static_cast<std::uint64_t>(split.samples) &&
      counts.size() == classes && std::ranges::all_of(counts, in_range) &&
      std::accumulate(counts.begin(), counts.end(), std::int64_t{0}) == split.samples &&
      std::ranges::all_of(split.mean, is_fraction) && std::ranges::all_of(split.std, is_fraction);
  if (!is_valid)
    fail<DataError>(
        "{}: split {}: {} samples in {} shards of {} bytes with the counts of {} classes, mean {} and std {}, expected 1 to "
        "2^31 - 1 of both, room for them, the counts of {} classes, which add up to the samples, and statistics of 0 to 1",
        name, split.name, split.samples, split.shards, split.bytes, counts.size(), fmt::join(split.mean, " "),
        fmt::join(split.std, " "), classes);
}

}  // namespace

std::string ShardSplit::shard_name(std::int64_t number) const {
  return fmt::format("{}-{:06}.tar", name, number);
}

std::string to_text(const ShardIndex& index) { return json_text(nlohmann::json(index), 1) + "\n"; }

ShardIndex parse_shard_index(std::string_view text, const std::string& name) {
  ShardIndex index;
  try {
    nlohmann::json::parse(text).get_to(index);
  } catch (const std::exception& error) {
    fail<DataError>("{}: no index of shards: {}", name, error.what());
  }
  if (const std::string expected = ShardIndex().format; index.format != expected)
    fail<DataError>("{}: format '{}', expected '{}'", name, index.format, expected);
  std::string names;
  for (const ShardSplit& split : index.splits) names += " " + split.name;
  if (names != " train test" && names != " train test val")
    fail<DataError>("{}: the splits{}, expected train test, or train test val", name, names);
  for (const ShardSplit& split : index.splits) check_split(split, index.classes.size(), name);
  return index;
}

std::string tar_header(const std::string& path, std::uint64_t bytes) {
  check(path.size() <= kMaxPath, "tar: a path of {} bytes, expected at most {}", path.size(), kMaxPath);
  std::string header(kSector, '\0');
  const auto put = [&](std::size_t at, std::string_view text) { header.replace(at, text.size(), text); };
  put(0, path);
  put(100, "0000644");  // the mode; then the numbers of the user and of the group
  put(108, "0000000");
  put(116, "0000000");
  put(124, fmt::format("{:011o}", bytes));
  put(136, "00000000000");  // the time
  put(156, "0");            // a file
  put(257, std::string_view("ustar\00000", 8));
  put(kSumAt, std::string(kSumBytes, ' '));  // the sum counts itself as blanks
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(kSumAt, fmt::format("{:06o}", sum));
  header[kSumAt + 6] = '\0';
  return header;
}

std::string parse_tar_header(std::string_view header, std::uint64_t bytes, const std::string& name) {
  const std::string path(header.substr(0, std::min(header.find('\0'), kMaxPath)));
  if (header != tar_header(path, bytes))
    fail<DataError>(
        "{}: no header of a member of {} bytes, which the index has there: the file is damaged or another",
        name, bytes);
  return path;
}

}  // namespace convoy::data
