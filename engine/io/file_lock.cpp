#include "convoy/engine/io/file_lock.h"

#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy::io {

FileLock::FileLock(std::filesystem::path path, const std::function<void(std::int64_t holder)>& waiting)
    : path_(std::move(path)) {
  bool is_first = true;
  do {
    file_.emplace(path_, O_RDWR | O_CREAT);
    LockResult result = try_lock(file_->get());
    if (result == LockResult::held) {
      if (std::exchange(is_first, false) && waiting) waiting(holder());
      while (::flock(file_->get(), LOCK_EX) != 0)
        if (errno != EINTR)
          fail<OutputError>("{}: cannot be locked: {}", path_.string(), std::strerror(errno));
      result = LockResult::acquired;
    }
    is_locked_ = result == LockResult::acquired;
  } while (is_locked_ && !is_current());
  if (is_locked_) write_holder();
}

FileLock::~FileLock() { ::unlink(path_.c_str()); }

/// Returns the process ID that the holder of the lock has written, or 0 if there is none yet.
std::int64_t FileLock::holder() const {
  char text[24] = {};
  return ::pread(file_->get(), text, sizeof text - 1, 0) > 0 ? std::atoll(text) : 0;
}

/// Writes the process ID into the file. It is only for messages, so an error does not matter.
void FileLock::write_holder() const {
  const std::string text = std::to_string(::getpid());
  [[maybe_unused]] const ssize_t written = ::pwrite(file_->get(), text.data(), text.size(), 0);
}

/// Returns whether the locked file still has this name: the previous holder removes it.
bool FileLock::is_current() const {
  struct stat locked = {};
  struct stat named = {};
  return ::fstat(file_->get(), &locked) == 0 && ::stat(path_.c_str(), &named) == 0 &&
         locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
}

}  // namespace convoy::io
