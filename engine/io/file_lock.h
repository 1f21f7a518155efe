// A lock between processes and threads that do the same work once, such as a download.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>

#include "convoy/engine/io/file_descriptor.h"

namespace convoy::io {

/// An exclusive lock between processes and threads, if the file system supports locks. The kernel releases it
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
