// ImageCache: a file of decoded images, which the ranks of a host write together and then map into memory.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convoy/engine/io/file.h"
#include "convoy/engine/tensor/tensor.h"

namespace convoy::data {

/// The ranks of a host, seen from one of them. By default, one rank alone.
struct HostRanks {
  int rank = 0;  // of this process among them, from 0
  int size = 1;  // number of them
  /// Returns the texts of all of them, by rank. Blocks until all have called it. Throws PeerError if one
  /// fails.
  std::function<std::vector<std::string>(const std::string& local)> all_gather =
      [](const std::string& local) { return std::vector<std::string>{local}; };
};

/// The decoded images of a list of files.
struct DecodedImages {
  Tensor images;  // u8 [N, H, W, C]: those that could be decoded, in the order of the files
  std::map<std::int64_t, std::string> errors;  // why a file could not be decoded, by its number
  std::int64_t resized = 0;                    // number of images that were scaled
  std::int64_t chosen_size = 0;                // DataSet::chosen_size
};

/// Moves the rows of decoded files together, and returns their number. `images` has one row per file.
std::int64_t drop_failed(const View& images, const std::map<std::int64_t, std::string>& errors);

/// The cache of the decoded images of one list of files. It is a safetensors file with a tensor `images`, whose memory
/// all processes share that map it. The system reads its pages when they are used, so that it may be larger than the
/// memory. Usage, by all ranks of the host:
///
///   std::optional<DecodedImages> found = cache.open();
///   if (!found) {
///     std::uint8_t* images = cache.create(shape);
///     // Decode the files [begin(n), end(n)) of n to images + number * bytes per image.
///     found = cache.finish(*cache.gather(decoded));
///   }
///
/// open(), create(), gather() and finish() are collective calls. A rank that fails throws its error, and the others
/// throw PeerError. The file is written to PATH.part, which is renamed when it is complete; a failed or interrupted
/// attempt leaves an earlier file as it was. One thread uses an object.
class ImageCache {
 public:
  /// `key` determines the pixels: a cache with another key is not used. `waiting` is called before a wait for
  /// another process that writes the same file (io::FileLock).
  ImageCache(std::filesystem::path path, std::string key, HostRanks host,
             std::function<void(std::int64_t holder)> waiting);
  /// Removes an incomplete file.
  ~ImageCache();
  ImageCache(const ImageCache&) = delete;
  ImageCache& operator=(const ImageCache&) = delete;

  /// Maps the images of the file if it is complete and has the key; rank 0 compares the checksum of all
  /// bytes. Otherwise returns nothing and locks the file, until finish() or the destruction, against other
  /// processes that want to write it. Throws OutputError if the directory cannot be written, and DataError on
  /// all ranks if their paths or keys differ.
  std::optional<DecodedImages> open();
  /// Returns why open() did not use an existing file; "" if there is none, and on ranks other than 0.
  const std::string& problem() const { return problem_; }

  /// Returns the first file that this rank decodes, and the one after the last, of `count`.
  std::int64_t begin(std::int64_t count) const { return count * host_.rank / host_.size; }
  /// Returns the file behind the last one of this rank.
  std::int64_t end(std::int64_t count) const { return count * (host_.rank + 1) / host_.size; }
  /// Creates the file for images of `shape`, [files, H, W, C], and returns their memory, which is valid until
  /// the next call of create() or finish(). Reserves the disk space: throws OutputError if there is not
  /// enough.
  std::uint8_t* create(const Shape& shape);
  /// Returns the sum of what the ranks have decoded, without images; nothing if a rank passes nothing.
  std::optional<DecodedImages> gather(const std::optional<DecodedImages>& local);
  /// Completes the file and maps it. `decoded` is the result of gather(), perhaps with another chosen_size.
  DecodedImages finish(const DecodedImages& decoded);

 private:
  std::optional<DecodedImages> read(bool verifies);

  std::filesystem::path path_;
  std::string key_;
  HostRanks host_;
  std::function<void(std::int64_t)> waiting_;
  std::string problem_;
  std::optional<io::FileLock> lock_;  // on rank 0
  std::string temporary_;             // the incomplete file
  std::shared_ptr<void> memory_;      // of the incomplete file
  Shape shape_;                       // of its images
};

}  // namespace convoy::data
