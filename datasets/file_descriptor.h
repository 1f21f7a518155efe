// An open file, closed when it goes.
#pragma once

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>

#include "kernels/runtime/check.h"

namespace convoy {

class FileDescriptor {
 public:
  /// Opens with open(2)'s flags, never inherited by a child program; OutputError where that fails.
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

}  // namespace convoy
