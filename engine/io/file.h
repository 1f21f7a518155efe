// Durable and atomic file writes, locks, mappings, and file reads that check every length. All functions are
// thread-safe.
#pragma once

#include <fcntl.h>
#include <unistd.h>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "convoy/kernels/base/check.h"

namespace convoy::io {

/// The prefix of temporary files and directories. One that is left after a process was killed may be removed.
inline constexpr std::string_view kTemporaryPrefix = ".tmp-";

/// Writes a file atomically and durably: readers see either the old bytes or the new. Any number of threads
/// and processes may write a path at the same time; the last one to finish wins. Writes a temporary file with
/// a random name in the same directory, then fsync, rename, and fsync of the directory. Blocks until the file
/// is on disk, and retries transient errors. If an error persists, removes the temporary file, leaves the old
/// file unchanged and throws OutputError, which names the path and the system's reason.
void write_file_atomically(const std::filesystem::path& path, std::string_view bytes);

/// Creates or replaces a file and blocks until its bytes are on disk, with the same retries. Not atomic:
/// meant for files in a directory that is renamed into place when complete. Only one thread or process at a
/// time may write a path. Removes the file and throws OutputError if an error persists.
void write_file_durably(const std::filesystem::path& path, std::string_view bytes);
/// Writes the concatenation of `pieces` in the same way.
void write_file_durably(const std::filesystem::path& path, std::span<const std::string_view> pieces);

/// Blocks until the entries of a directory (files created, renamed or removed) are on disk. Throws
/// OutputError if that fails.
void sync_directory(const std::filesystem::path& directory);

/// Renames a path by rename(2), which is atomic within a file system. Not durable until sync_directory() of
/// the parent. Throws OutputError if it fails.
void rename_path(const std::filesystem::path& from, const std::filesystem::path& to);

/// The result of try_lock().
enum class LockResult : std::uint8_t {
  acquired,    // the lock is held until the file is closed or the process ends
  held,        // another process, or another open file of this process, holds the lock
  unsupported  // the file system has no locks, as some network file systems
};
/// Tries to lock an open file against other processes (flock(2)). Does not block.
LockResult try_lock(int descriptor);

/// Whether the memory of map_file() may be written. Writes go to the file.
enum class MapAccess : std::uint8_t { read, write };
/// Maps bytes [offset, offset + bytes) of an open file into memory, which all processes that map them share.
/// The system reads and evicts its pages as necessary. The file may be closed, renamed or removed, but must
/// not be truncated: access beyond its end kills the process. The memory is unmapped with the last copy of
/// the pointer, which is null for 0 bytes. `path` is for messages. Throws OutputError (MapAccess::write) or
/// CheckpointError if the system refuses, and StorageError as InputFile does.
std::shared_ptr<void> map_file(int descriptor, std::uint64_t offset, std::size_t bytes, MapAccess access,
                               const std::filesystem::path& path);

/// A regular file that is open for reading. All functions throw StorageError in place of CheckpointError if the device of
/// the file fails (is_transient()).
class InputFile {
 public:
  /// Opens the file. Throws CheckpointError if it cannot be opened or is not a regular file.
  explicit InputFile(std::filesystem::path path);
  /// Closes the file.
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  /// Returns the path that the constructor was given.
  const std::filesystem::path& path() const { return path_; }
  /// Returns the size in bytes that the file had when it was opened.
  std::uint64_t size() const { return size_; }
  /// Fills `bytes` from `offset` on. Throws CheckpointError if the read fails or the file ends earlier, which
  /// means that it shrank.
  void read(std::uint64_t offset, std::span<std::byte> bytes) const;
  /// Maps `bytes` bytes from `offset` on for reading, as map_file() does.
  std::shared_ptr<void> map(std::uint64_t offset, std::size_t bytes) const {
    return map_file(descriptor_, offset, bytes, MapAccess::read, path_);
  }

 private:
  std::filesystem::path path_;
  int descriptor_ = -1;
  std::uint64_t size_ = 0;
};

/// Returns the contents of a text file. Throws CheckpointError if it has more than `max_bytes` bytes or
/// cannot be read.
std::string read_text_file(const std::filesystem::path& path, std::uint64_t max_bytes);

/// Returns the xxhash64 of the bytes as 16 hex digits.
std::string hash_bytes(std::string_view bytes);
/// Returns the hash of the concatenation of `pieces`.
std::string hash_bytes(std::span<const std::string_view> pieces);
/// Returns the hash of a file's contents. Throws CheckpointError if it cannot be read.
std::string hash_file(const std::filesystem::path& path);

/// A file descriptor that its destructor closes.
class FileDescriptor {
 public:
  /// Opens a file with the flags of open(2) and O_CLOEXEC. Throws OutputError if that fails.
  FileDescriptor(const std::filesystem::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail<OutputError>("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  }
  /// Closes it.
  ~FileDescriptor() { ::close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  /// Returns the descriptor.
  int get() const { return fd_; }

 private:
  int fd_;
};

/// An exclusive lock between processes and threads that do the same work once, such as a download, if the file
/// system supports locks. The kernel releases it
/// when the process exits for any reason.
class FileLock {
 public:
  /// Creates the file `path` and blocks until it is locked. If another process holds the lock, calls
  /// `waiting` first, unless it is empty: `holder` is the process ID on its machine, or 0 if unknown. Throws
  /// OutputError if the file cannot be created.
  FileLock(std::filesystem::path path, const std::function<void(std::int64_t holder)>& waiting);
  /// Removes the file before unlocking it. Waiting processes detect that and lock a new file.
  ~FileLock();
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

  /// Returns whether the file system supports locks.
  bool is_locked() const { return is_locked_; }

 private:
  std::int64_t holder() const;
  void write_holder() const;
  bool is_current() const;

  std::filesystem::path path_;
  std::optional<FileDescriptor> file_;
  bool is_locked_ = false;
};

}  // namespace convoy::io
