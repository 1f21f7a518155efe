// Location and reading of the data set that a program's flags select.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "convoy/apps/flags/command_line.h"
#include "convoy/datasets/cache/image_cache.h"
#include "convoy/datasets/dataset.h"

namespace convoy {

/// The values of the flags of add_data_flags().
struct DataOptions {
  std::string dataset = "cifar10";  // a name of the table in datasets/formats/registry.h
  std::string data;                 // directory; empty: search
  bool download = true;
  bool fallback_shapes = false;
  std::int64_t image_size = 0;
  bool skip_corrupt = false;
  std::string image_cache;          // directory; empty: none
  std::string validation = "none";  // a flag of convoy-train only, as validation_count() reads it
  std::int64_t workers = 2;
  std::int64_t shard_memory = 1024;  // MiB
  bool checks_files = true;          // not a flag: another rank compares the sizes of shards
  bool quiet = false;                // not a flag: another rank prints the progress of downloads
};

/// Adds the flags of every program that reads a data set to the group "Data". default_text: the default of
/// --dataset to show in the help if it comes from a checkpoint.
void add_data_flags(CommandLine& line, DataOptions& options, const std::string& default_text = "");

/// The result of locate_data().
struct DataLocation {
  std::string dataset;              // "shapes" if nothing was found and --fallback-shapes allows it
  std::filesystem::path directory;  // absolute; empty for a generated data set
  std::string warning;              // names the fallback and its reason; empty: no fallback
};

/// Finds the directory of the data set. Searches only --data if it is given; else $CONVOY_DATA, ./data and
/// the user's cache. If nothing is found, downloads the official files to the cache. Throws UsageError for an
/// unknown data set, and DataError with all searched directories if there is none.
DataLocation locate_data(const DataOptions& options);

/// Returns how many of `images` training images the text of --validation holds out: "none", a percentage such
/// as "10%", or a number. Throws UsageError for another text.
std::int64_t validation_count(const std::string& text, std::int64_t images);

/// Reads the data set, and holds out the training images of --validation. `seed` determines these, generated
/// images, and the split of directories without train/ and test/. `host`: the ranks of this host that call
/// this function at the same time (data::ReadOptions).
data::DataSet read_data(const DataLocation& location, const DataOptions& options, std::uint64_t seed,
                        const data::HostRanks& host = {});

/// Returns a hash of the images and labels of a split. It does not depend on the directory.
std::string hash_of(const data::ImageSet& set);

}  // namespace convoy
