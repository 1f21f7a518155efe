// A file descriptor that its destructor closes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "convoy/kernels/base/check.h"

namespace convoy::io {

/// An owned file descriptor.
class FileDescriptor {
 public:
  /// Opens a file with the flags of open(2) and O_CLOEXEC. Throws OutputError if that fails.
  FileDescriptor(const std::filesystem::path& path, int flags)
      : fd_(::open(path.c_str(), flags | O_CLOEXEC, 0644)) {
    if (fd_ < 0) fail<OutputError>("{}: cannot be opened: {}", path.string(), std::strerror(errno));
  }
  ~FileDescriptor() { ::close(fd_); }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;

  int get() const { return fd_; }

 private:
  int fd_;
};

}  // namespace convoy::io
