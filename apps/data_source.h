// Where a data set comes from: a folder that was named, one that is found, or the official archive.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "datasets/dataset.h"

namespace convoy {

struct DataOptions {
  std::string dataset = "cifar10";
  std::string data;  // folder; empty: search
  bool download = true;
  bool fallback_shapes = false;
  std::int64_t image_size = 0;
  bool skip_corrupt = false;
  std::int64_t workers = 2;
  bool quiet = false;  // no flag: another rank tells of downloads
};

/// The flags that every program with a data set has. default_is: what --help says of --dataset where the
/// default comes from a checkpoint.
void add_data_flags(CommandLine& line, DataOptions& options, const std::string& default_is = "");

struct DataLocation {
  std::string dataset;           // shapes where nothing was found and --fallback-shapes allows it
  std::filesystem::path folder;  // absolute; empty for shapes
  std::string warning;           // what was fallen back to, and why
};

/// Looks in --data alone where it is given, else in CONVOY_DATA, ./data and the user's cache, and then
/// downloads into the cache. DataError that names every place.
DataLocation locate_data(const DataOptions& options);

/// Reads what was located. seed: of generated sets, and of the split of folders without train/ and test/.
DataSet read_data(const DataLocation& location, const DataOptions& options, std::uint64_t seed);

/// Of a split's images and labels, whatever folder they came from.
std::string hash_of(const ImageSet& set);

}  // namespace convoy
