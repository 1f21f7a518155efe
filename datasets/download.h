// Downloads of the official archives: checked, resumable, safe when several processes start at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

namespace convoy {

struct RemoteFile {
  std::string url;   // http or https; mirrors come as further entries of the same name and checksum
  std::string name;  // file name under the target folder
  std::string md5;   // 32 hex digits
};

struct DownloadOptions {
  int attempts = 5;        // of each mirror, in order; each continues where the last one stopped (HTTP Range)
  int backoff_ms = 500;    // before the second attempt; doubled each time
  int stall_seconds = 30;  // without a byte: counts as a failed attempt
  /// Called now and then, and at the end; total is -1 where unknown. What it throws ends the download; what
  /// came is kept.
  std::function<void(std::int64_t received, std::int64_t total)> progress;
};

/// Makes sure that folder/name exists with this checksum. A lock file keeps other processes waiting and lets
/// them find the finished file; a partial file (folder/name.part) is resumed; one with a wrong checksum is
/// deleted and counted as an attempt. A mirror that cannot be helped by asking again (unknown host, HTTP 404)
/// is left at once. DataError when all attempts of all mirrors failed, saying why each did; OutputError where
/// the folder cannot be written.
std::filesystem::path download(const std::vector<RemoteFile>& mirrors, const std::filesystem::path& folder,
                               const DownloadOptions& options = {});

/// Where data sets are kept that no flag names: $XDG_CACHE_HOME/convoy or ~/.cache/convoy.
std::filesystem::path cache_folder();

/// The official archives: for each file, its mirrors.
std::vector<std::vector<RemoteFile>> cifar10_files();
std::vector<std::vector<RemoteFile>> mnist_files();

std::string md5_of_file(const std::filesystem::path& path);

}  // namespace convoy
