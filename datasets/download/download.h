// Downloads of data sets: verified, resumable, and safe if several processes or threads start them at once.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "convoy/datasets/dataset.h"

namespace convoy::data {

/// How often, and for how long, a request is tried.
struct HttpOptions {
  int attempts = 5;        // per address
  int backoff_ms = 500;    // delay before the second attempt; doubles with every further attempt
  int stall_seconds = 30;  // an attempt fails if no byte is received for this long
};

/// Options of download(), each of whose attempts continues where the previous one stopped (HTTP Range).
struct DownloadOptions : HttpOptions {
  /// Called from time to time with the size of the received part, and at the end. `total` is -1 if unknown.
  /// An exception stops the download; the received part is kept.
  std::function<void(std::int64_t received, std::int64_t total)> progress;
  /// Called once if another process is downloading the file, before the wait for it. `holder` is its process
  /// ID on its machine, or 0 if unknown.
  std::function<void(std::int64_t holder)> waiting;
};

/// Downloads the file to `directory`, unless it exists there with the right checksum (or with any contents, if the mirrors
/// have none), and returns its path.
/// Blocks until the download is complete. A lock file makes other processes and threads wait; they then find
/// the complete file. On a file system without locks, each downloads a file of its own. A partial file
/// (NAME.part) is resumed. One with a wrong checksum is deleted and counts as a failed attempt. Permanent
/// failures, such as an unknown host or HTTP 404, are not retried. Throws DataError with the reasons if all
/// mirrors fail, and OutputError if the directory cannot be written.
std::filesystem::path download(const Mirrors& mirrors, const std::filesystem::path& directory,
                               const DownloadOptions& options = {});

/// Returns whether `place` is the address of a file on a web server, and not a path.
bool is_url(std::string_view place);

/// Returns `bytes` bytes from `begin` on of the file at `url` (RFC 9110, section 14), and sets `total` to the size of the
/// file. If the server cannot be reached, stalls, loses the connection, has an error or sends a body of another length, tries
/// again and requests what is missing. Blocks. Throws StorageError if all attempts fail so, and DataError if a retry would
/// not help: there is no such file, or the server does not send parts of files. Thread-safe.
std::string read_part(const std::string& url, std::uint64_t begin, std::uint64_t bytes,
                      const HttpOptions& options, std::uint64_t& total);

/// Returns the directory of downloaded data sets: $XDG_CACHE_HOME/convoy or ~/.cache/convoy. Throws
/// UsageError if neither variable is an absolute path.
std::filesystem::path cache_directory();

/// Returns the SHA-256 of these bytes, one part after the other, as 64 hexadecimal digits.
std::string sha256_of(std::span<const std::string_view> parts);

/// Returns the MD5 checksum of a file as 32 hexadecimal digits. Throws DataError if the file cannot be read.
std::string md5_of_file(const std::filesystem::path& path);

}  // namespace convoy::data
