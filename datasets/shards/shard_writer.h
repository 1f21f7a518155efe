// Makes and verifies data sets of shards.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "convoy/datasets/formats/readers.h"

namespace convoy::data {

/// The options of write_shards().
struct ShardOptions {
  std::int64_t shard_bytes = std::int64_t{512} << 20;  // of a shard, about
  /// Called after each shard, by one thread at a time.
  std::function<void(const std::string& shard, std::int64_t done, std::int64_t count)> progress = {};
  ReadOptions read = {};  // seed (also of the order of the samples), test_fraction, skip_corrupt and workers
};

/// The result of write_shards().
struct ShardReport {
  std::int64_t shards = 0;            ///< all of them
  std::int64_t kept = 0;              ///< those that an earlier call has made
  std::int64_t samples = 0;           ///< in all shards
  std::vector<std::string> warnings;  // as DataSet::warnings
};

/// Writes the images of a directory, which read_image_folder() could read, to shards in the directory `out`, in an order
/// that the seed determines, and verifies them. The bytes of an image stay as they are; it is decoded for its statistics.
/// The same images and options give the same bytes. The next call continues an interrupted one, and keeps the complete
/// shards. Blocks while another process writes to `out`. Throws DataError if there is one class, if an image cannot be
/// decoded (unless skip_corrupt is set), or if `out` has shards of other images or options; UsageError if it is inside
/// `images`; and OutputError if it cannot be written.
ShardReport write_shards(const std::filesystem::path& images, const std::filesystem::path& out,
                         const ShardOptions& options);

/// Compares all shards in a directory with their index, and this with index.json. Returns their number. Throws DataError,
/// which names up to three that are missing or damaged, and StorageError if a device fails.
std::int64_t verify_shards(const std::filesystem::path& directory, int workers);

}  // namespace convoy::data
