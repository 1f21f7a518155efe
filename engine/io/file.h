// Files: writes that are whole or not there at all, and reads that check every length.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>

namespace convoy {

/// Temporary files and folders begin with this; whoever finds one after a kill may remove it.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";

/// Writes a file so that readers see the old bytes or the new: temporary in the same folder, fsync, rename,
/// fsync of the folder. Transient errors are retried; OutputError names the path and the system's reason, and
/// leaves neither a temporary nor a change.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

/// Creates or replaces a file and returns when its bytes are on the disk, with the same retries. Not atomic:
/// for files of a folder that is renamed into place when it is whole. Removes the file where it fails.
void write_file_durably(const std::filesystem::path& path, std::string_view bytes);
/// The same of bytes that lie in several places, one after the other.
void write_file_durably(const std::filesystem::path& path, std::span<const std::string_view> pieces);

/// Returns when the names in a folder (files created, renamed, removed) are on the disk. OutputError.
void sync_folder(const std::filesystem::path& folder);

/// rename(2): atomic within a file system. Not durable before sync_folder of the parent. OutputError.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

/// A regular file, open for reading. CheckpointError where it cannot be opened or read.
class InputFile {
 public:
  explicit InputFile(std::filesystem::path path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  const std::filesystem::path& path() const { return path_; }
  std::uint64_t size() const { return size_; }
  /// Fills `bytes` from an offset; an end of file before that is an error (the file shrank).
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// A whole text file of at most `most` bytes. CheckpointError where it is longer or cannot be read.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t most);

/// xxhash64, 16 hex digits; of a file: CheckpointError where it cannot be read.
std::string hash_bytes(std::string_view bytes);
std::string hash_bytes(std::span<const std::string_view> pieces);  // as if they lay side by side
std::string hash_file(const std::filesystem::path& path);

}  // namespace convoy
