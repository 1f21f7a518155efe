#include "apps/data_source.h"

#include <unistd.h>

#include <cstdlib>

#include "datasets/download.h"
#include "datasets/readers.h"
#include "engine/io/file.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

constexpr int kGeneratedSize = 32;  // pixels, of shapes

bool holds_archive(const std::string& dataset, const fs::path& folder) {
  const std::vector<const char*> names =
      dataset == "mnist" ? std::vector{"train-images-idx3-ubyte", "train-images-idx3-ubyte.gz"}
                         : std::vector{"cifar-10-binary.tar.gz", "cifar-10-batches-bin", "data_batch_1.bin"};
  return std::any_of(names.begin(), names.end(), [&](const char* name) { return fs::exists(folder / name); });
}

bool holds_class_folders(const std::string& dataset, const fs::path& folder) {
  return dataset == "cifar10" && fs::is_directory(folder / "train") && fs::is_directory(folder / "test");
}

/// The folder of a data set at `root`, its own folder or one of many; empty where it is not there.
fs::path find_under(const std::string& dataset, const fs::path& root) {
  const fs::path own = root / dataset;
  if (holds_archive(dataset, own) || holds_class_folders(dataset, own)) return own;
  // Only after the folder of the set's name: train/ and test/ may be those of any other set.
  if (holds_archive(dataset, root) || holds_class_folders(dataset, root)) return root;
  return {};
}

std::string layout_of(const std::string& dataset) {
  return dataset == "mnist"
             ? "train-images-idx3-ubyte(.gz) and the three files beside it"
             : "cifar-10-binary.tar.gz, cifar-10-batches-bin/, or train/ and test/ with class folders";
}

/// Downloads into the cache, with one line of progress on a terminal.
fs::path download_set(const std::string& dataset, bool quiet) {
  const fs::path folder = cache_folder() / dataset;
  const auto files = dataset == "mnist" ? mnist_files() : cifar10_files();
  for (const auto& mirrors : files) {
    DownloadOptions options;
    const bool terminal = isatty(STDERR_FILENO) != 0;
    if (terminal && !quiet)
      options.progress = [name = mirrors.front().name](std::int64_t received, std::int64_t total) {
        fmt::print(stderr, "\rdownloading {}: {}{}\x1b[K", name,
                   format_bytes(static_cast<std::size_t>(received)),
                   total > 0 ? fmt::format(" of {}", format_bytes(static_cast<std::size_t>(total))) : "");
      };
    else if (!quiet)
      fmt::print(stderr, "downloading {} into {}\n", mirrors.front().name, folder.string());
    download(mirrors, folder, options);
    if (terminal && !quiet) fmt::print(stderr, "\r\x1b[K");
  }
  return folder;
}

DataLocation located(const std::string& dataset, const fs::path& folder) {
  return {.dataset = dataset, .folder = fs::absolute(folder).lexically_normal(), .warning = ""};
}

DataLocation fall_back(const std::string& why) {
  return {
      .dataset = "shapes", .folder = {}, .warning = why + "; training on the generated shapes set instead"};
}

}  // namespace

void add_data_flags(CommandLine& line, DataOptions& options, const std::string& default_is) {
  line.add("dataset", &options.dataset, "Data set",
           {.value = "NAME", .default_is = default_is, .choices = {"cifar10", "mnist", "folder", "shapes"}});
  line.add("data", &options.data, "Folder of the data set",
           {.value = "DIR", .default_is = "$CONVOY_DATA, ./data, the user's cache"});
  line.add("download", &options.download,
           "Download the official archive where the data set is found nowhere");
  line.add("image-size", &options.image_size, "Resize images to this square, in pixels; 0: as they are",
           {.value = "PIXELS", .least = 0, .most = 4096});
  line.add("skip-corrupt", &options.skip_corrupt, "Leave out images that cannot be decoded, each named");
  line.add("workers", &options.workers, "Threads that prepare batches; 0: none beside the main one",
           {.value = "N", .least = 0, .most = 256});
}

DataLocation locate_data(const DataOptions& options) {
  const std::string& dataset = options.dataset;
  if (dataset == "shapes") {
    check(options.data.empty(), "--data: the shapes set is generated, and reads nothing from '{}'",
          options.data);
    return {.dataset = dataset, .folder = {}, .warning = ""};
  }
  if (dataset == "folder") {
    check(!options.data.empty(), "--dataset folder: --data is missing, expected the folder of the images");
    if (!fs::is_directory(options.data)) fail<DataError>("--data: {} is no folder", options.data);
    return located(dataset, options.data);
  }
  if (!options.data.empty()) {
    const fs::path found = find_under(dataset, options.data);
    if (found.empty())
      fail<DataError>("--data: no {} in {}, expected {}", dataset, options.data, layout_of(dataset));
    return located(dataset, found);
  }

  std::vector<fs::path> roots;
  if (const char* named = std::getenv("CONVOY_DATA"); named != nullptr && *named != '\0')
    roots.emplace_back(named);
  roots.emplace_back("data");
  roots.push_back(cache_folder());
  std::string looked;
  for (const fs::path& root : roots) {
    const fs::path found = find_under(dataset, root);
    if (!found.empty()) return located(dataset, found);
    looked += fmt::format("{}{}", looked.empty() ? "" : ", ", root.string());
  }
  std::string why = fmt::format("no {} in {}", dataset, looked);
  if (options.download) {
    try {
      return located(dataset, download_set(dataset, options.quiet));
    } catch (const Error& error) {
      why += fmt::format(", and it could not be downloaded: {}", error.what());
    }
  }
  if (options.fallback_shapes) return fall_back(why);
  fail<DataError>("{}; name its folder with --data, or train on --dataset shapes", why);
}

DataSet read_data(const DataLocation& location, const DataOptions& options, std::uint64_t seed) {
  if (location.dataset == "shapes") {
    const int size = options.image_size > 0 ? static_cast<int>(options.image_size) : kGeneratedSize;
    return generate_shapes({.size = size, .seed = seed});
  }
  ReadOptions read{.image_size = static_cast<int>(options.image_size),
                   .skip_corrupt = options.skip_corrupt,
                   .workers = static_cast<int>(std::max<std::int64_t>(options.workers, 1)),
                   .seed = seed};
  if (location.dataset == "mnist") return read_mnist(location.folder, read);
  if (location.dataset == "cifar10") return read_cifar10(location.folder, read);
  return read_image_folder(location.folder, read);
}

std::string hash_of(const ImageSet& set) {
  const auto bytes = [](const Tensor& tensor) {
    return std::string_view(tensor.view().as<char>(), tensor.bytes());
  };
  return hash_bytes(bytes(set.images)) + hash_bytes(bytes(set.labels));
}

}  // namespace convoy
