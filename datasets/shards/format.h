// The files of a data set of shards, which README.md describes: tar files, an index of each split, and index.json.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "convoy/datasets/dataset.h"

namespace convoy::data {

inline constexpr std::uint64_t kSector = 512;  // bytes: the unit of tar files
/// The bytes of a sample before its image: the member KEY.cls, a header and its text, and the header of the image.
inline constexpr std::uint64_t kSampleHeaderBytes = 3 * kSector;

/// A shard in the index of a split, before all samples.
struct ShardFile {
  std::uint64_t hash = 0;     // xxhash64 of its contents
  std::uint32_t sectors = 0;  // its size
  std::uint32_t first = 0;    // the number of its first sample
};
/// A sample in the index of a split.
struct ShardSample {
  std::uint32_t label = 0;
  std::uint32_t shard = 0;   // the number of its shard
  std::uint32_t sector = 0;  // where the bytes of its image begin in the shard
  std::uint32_t bytes = 0;   // of its image

  /// Returns where the sample begins in its shard, in bytes.
  std::uint64_t begin() const { return sector * kSector - kSampleHeaderBytes; }
  /// Returns where the next sample begins.
  std::uint64_t end() const { return (sector + (bytes + kSector - 1) / kSector) * kSector; }
};
static_assert(sizeof(ShardFile) == 16 && sizeof(ShardSample) == 16);

/// A split in index.json.
struct ShardSplit {
  std::string name;                        // "train", "test" or "val"
  std::int64_t shards = 0, samples = 0;    // their numbers
  std::uint64_t bytes = 0;                 // of all shards
  std::vector<std::int64_t> class_counts;  // in label order
  std::array<float, 4> mean{}, std{};      // as ChannelStatistics, of all pixels of the images
  std::string hash;                        // of the index

  std::string index_name() const { return name + ".index"; }
  std::uint64_t index_bytes() const {
    return static_cast<std::uint64_t>(shards + samples) * sizeof(ShardSample);
  }
  /// Returns the name of a shard: "train-000012.tar".
  std::string shard_name(std::int64_t number) const;
};

/// The contents of index.json.
struct ShardIndex {
  std::string format = "convoy shards 1";
  std::string source;  // a hash of the list of files and options that the shards are made from
  std::vector<std::string> classes;
  std::vector<ShardSplit> splits;
};

inline constexpr const char* kShardIndexName = "index.json";
/// Returns the text of index.json.
std::string to_text(const ShardIndex& index);
/// Reads index.json. Throws DataError, which starts with `name`, unless it has all members with possible values.
ShardIndex parse_shard_index(std::string_view text, const std::string& name);

/// Returns the header of a tar member in the format ustar (POSIX.1-1988). `path` has at most 100 bytes.
std::string tar_header(const std::string& path, std::uint64_t bytes);
/// Returns the path in the kSector bytes of a header. Throws DataError, which starts with `name`, unless it is what
/// tar_header() returns for that path and `bytes`.
std::string parse_tar_header(std::string_view header, std::uint64_t bytes, const std::string& name);

}  // namespace convoy::data
