#include "convoy/apps/data/data_source.h"

#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <tuple>

#include "convoy/apps/common/text.h"
#include "convoy/datasets/download/download.h"
#include "convoy/datasets/formats/registry.h"
#include "convoy/datasets/loader/sampler.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

// Generated, so it is always available.
constexpr const char* kFallbackDataset = "shapes";

/// Returns the errno of what prevents the access to a directory; 0 if nothing does, or if there is none.
int error_of(const fs::path& directory) {
  std::error_code error;
  const fs::file_status status = fs::status(directory, error);
  if (status.type() == fs::file_type::not_found) return 0;
  if (error) return error.value();
  return !fs::is_directory(status) || ::access(directory.c_str(), R_OK | X_OK) == 0 ? 0 : errno;
}

/// Throws DataError if `directory` exists and cannot be read.
void check_readable(const fs::path& directory) {
  if (const int error = error_of(directory); error != 0)
    fail_read<DataError>(error, "--data: {} cannot be read", directory.string());
}

/// Returns the directory of a data set under `root`: root/NAME or `root`. Returns an empty path if there is
/// none.
fs::path find_under(const data::DatasetEntry& entry, const fs::path& root) {
  // root/NAME comes first, because train/ and test/ in `root` may belong to any data set.
  for (const fs::path& directory : {root / entry.name, root})
    if (entry.files->are_in(directory)) return directory;
  return {};
}

/// Downloads the official files to the cache directory, and returns the directory of the data set. Prints one
/// line of progress on a terminal unless `quiet`.
fs::path download_dataset(const data::DatasetEntry& entry, bool quiet) {
  const fs::path directory = data::cache_directory() / entry.name;
  for (const data::Mirrors& mirrors : entry.files->official()) {
    data::DownloadOptions options;
    const bool terminal = isatty(STDERR_FILENO) != 0;
    if (terminal && !quiet)
      options.progress = [name = mirrors.front().name](std::int64_t received, std::int64_t total) {
        fmt::print(stderr, "\rdownloading {}: {}{}\x1b[K", name,
                   format_bytes(static_cast<std::size_t>(received)),
                   total > 0 ? fmt::format(" of {}", format_bytes(static_cast<std::size_t>(total))) : "");
      };
    else if (!quiet)
      fmt::print(stderr, "downloading {} into {}\n", mirrors.front().name, directory.string());
    options.waiting = [&](std::int64_t holder) {
      fmt::print(stderr, "waiting for process {}, which is downloading {}\n", holder, mirrors.front().name);
    };
    data::download(mirrors, directory, options);
    if (terminal && !quiet) fmt::print(stderr, "\r\x1b[K");
  }
  return directory;
}

DataLocation located(const std::string& dataset, const fs::path& directory) {
  return {.dataset = dataset, .directory = fs::absolute(directory).lexically_normal(), .warning = ""};
}

}  // namespace

void add_data_flags(CommandLine& line, DataOptions& options, const std::string& default_text) {
  line.group("Data");
  line.add("dataset", &options.dataset, "Data set",
           {.value = "NAME", .default_text = default_text, .choices = data::dataset_names(), .fixed = true});
  line.add("data", &options.data, "Data set directory",
           {.value = "DIR", .default_text = "$CONVOY_DATA, ./data, or the user's cache"});
  line.add("download", &options.download, "Download of the official archive if the data set is not found",
           {.advanced = true});
  line.add("image-size", &options.image_size,
           "Image size after resizing (pixels per side); 0: original size, or 224 if the sizes of a folder's "
           "images differ",
           {.value = "PIXELS", .minimum = 0, .maximum = 4096, .fixed = true, .advanced = true});
  line.add(
      "skip-corrupt", &options.skip_corrupt,
      "Warning instead of an error for images that cannot be decoded, and for shards that are missing or incomplete",
      {.advanced = true});
  line.add("shard-memory", &options.shard_memory,
           "Memory of a process for the bytes of shards that are read ahead or in use, of each split (MiB)",
           {.value = "MIB", .minimum = 1, .maximum = 1 << 24, .advanced = true});
  line.add(
      "image-cache", &options.image_cache,
      "Directory that keeps the decoded images of a folder in a file, which later starts and all ranks of a "
      "host map into memory",
      {.value = "DIR", .default_text = "none", .advanced = true});
  line.add("workers", &options.workers, "Data loader threads; 0: main thread",
           {.value = "N", .minimum = 0, .maximum = 256, .advanced = true});
}

DataLocation locate_data(const DataOptions& options) {
  const std::string& dataset = options.dataset;
  const data::DatasetEntry& entry = data::find_dataset(dataset);
  if (entry.source == data::DatasetSource::generated) {
    check(options.data.empty(), "--data: the {} set is generated, and reads nothing from '{}'", dataset,
          options.data);
    return {.dataset = dataset, .directory = {}, .warning = ""};
  }
  if (entry.source == data::DatasetSource::user_directory) {
    check(!options.data.empty(), "--dataset {0}: --data is missing, expected the directory of the {1}",
          dataset, dataset == "shards" ? dataset : "images");
    if (dataset == "shards" && data::is_url(options.data))
      return {.dataset = dataset, .directory = options.data, .warning = ""};
    check_readable(options.data);
    if (std::error_code ignored; dataset != "shards" && !fs::is_directory(options.data, ignored))
      fail<DataError>("--data: {} is no directory", options.data);
    return located(dataset, options.data);
  }
  if (!options.data.empty()) {
    for (const fs::path& directory : {fs::path(options.data), options.data / fs::path(entry.name)})
      check_readable(directory);
    const fs::path found = find_under(entry, options.data);
    if (found.empty())
      fail<DataError>("--data: no {} in {}, expected {}", dataset, options.data, entry.files->expected());
    return located(dataset, found);
  }

  std::vector<fs::path> roots;
  if (const char* named = std::getenv("CONVOY_DATA"); named != nullptr && *named != '\0')
    roots.emplace_back(named);
  roots.emplace_back("data");
  roots.push_back(data::cache_directory());
  std::string searched;
  for (const fs::path& root : roots) {
    const fs::path found = find_under(entry, root);
    if (!found.empty()) return located(dataset, found);
    const int error = error_of(root / entry.name);
    searched += fmt::format("{}{}{}", searched.empty() ? "" : ", ", root.string(),
                            error == 0 ? "" : fmt::format(" ({})", std::strerror(error)));
  }
  std::string why = fmt::format("no {} in {}", dataset, searched);
  if (options.download) {
    try {
      return located(dataset, download_dataset(entry, options.quiet));
    } catch (const Error& error) {
      why += fmt::format(", and it could not be downloaded: {}", error.what());
    }
  }
  if (options.fallback_shapes)
    return {.dataset = kFallbackDataset,
            .directory = {},
            .warning = fmt::format("{}; training on the generated {} set instead", why, kFallbackDataset)};
  fail<DataError>("{}; name its directory with --data, or train on --dataset {}", why, kFallbackDataset);
}

std::int64_t validation_count(const std::string& text, std::int64_t images) {
  if (text == "none") return 0;
  const bool is_percentage = text.ends_with('%');
  const double number =
      number_in<double>(std::string_view(text).substr(0, text.size() - (is_percentage ? 1 : 0))).value_or(0);
  const bool is_valid =
      number > 0 && (is_percentage ? number < 100 : number == std::floor(number) && number < 1e9);
  check(is_valid,
        "--validation: found '{}', expected none, a percentage of the training images such as 10%, or a "
        "number of images",
        text);
  return is_percentage ? std::llround(number / 100 * static_cast<double>(images)) : std::llround(number);
}

data::DataSet read_data(const DataLocation& location, const DataOptions& options, std::uint64_t seed,
                        const data::HostRanks& host) {
  check(
      options.image_cache.empty() || location.dataset == "folder" || location.dataset == "cifar10",
      "--image-cache: found --dataset {}, which has no image files, expected folder, or cifar10 as directories",
      location.dataset);
  check(
      options.validation == "none" || location.dataset != "shards",
      "--validation {}: found --dataset shards, whose validation images are those of val/ when convoy-shard makes them",
      options.validation);
  data::DataSet set =
      data::find_dataset(location.dataset)
          .read(location.directory,
                {.image_size = static_cast<int>(options.image_size),
                 .skip_corrupt = options.skip_corrupt,
                 .use_validation_directory = options.validation == "none",
                 .workers = static_cast<int>(std::max<std::int64_t>(options.workers, 1)),
                 .seed = seed,
                 .image_cache = options.image_cache,
                 .host = host,
                 .waiting =
                     [&](std::int64_t holder) {
                       fmt::print(stderr,
                                  "waiting for process {}, which is writing the same images into {}\n",
                                  holder, options.image_cache);
                     },
                 .cache_bytes = static_cast<std::uint64_t>(options.shard_memory) << 20,
                 .checks_files = options.checks_files});
  if (const std::int64_t count = validation_count(options.validation, set.train.size());
      options.validation != "none")
    std::tie(set.train, set.validation) = data::hold_out(set.train, count, seed);
  return set;
}

std::string hash_of(const data::ImageSet& set) {
  if (set.source) return set.source->about().hash;
  const auto bytes = [](const Tensor& tensor) {
    return std::string_view(tensor.view().as<char>(), tensor.bytes());
  };
  return io::hash_bytes(bytes(set.images)) + io::hash_bytes(bytes(set.labels));
}

}  // namespace convoy
