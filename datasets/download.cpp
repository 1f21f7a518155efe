#include "datasets/download.h"

#include <sys/file.h>
#include <sys/stat.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <optional>
#include <thread>
#include <utility>

#include "datasets/file_descriptor.h"
#include "datasets/http_transfer.h"
#include "engine/io/file.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

/// Held by one process (and one thread) at a time; the kernel lets go when a process dies, however it does.
class FileLock {
 public:
  explicit FileLock(fs::path path) : path_(std::move(path)) {
    do {
      file_.emplace(path_, O_RDWR | O_CREAT);
      while (::flock(file_->get(), LOCK_EX) != 0)
        if (errno != EINTR)
          fail<OutputError>("{}: cannot be locked: {}", path_.string(), std::strerror(errno));
    } while (!is_current());
  }
  /// Removed while still locked: whoever waits for this file notices, and takes the next.
  ~FileLock() { ::unlink(path_.c_str()); }
  FileLock(const FileLock&) = delete;
  FileLock& operator=(const FileLock&) = delete;

 private:
  /// Is the locked file still the one of that name? The one who held it before has removed it.
  bool is_current() const {
    struct stat locked = {};
    struct stat named = {};
    return ::fstat(file_->get(), &locked) == 0 && ::stat(path_.c_str(), &named) == 0 &&
           locked.st_dev == named.st_dev && locked.st_ino == named.st_ino;
  }

  fs::path path_;
  std::optional<FileDescriptor> file_;
};

/// Why attempts failed, for one line; equal reasons in a row are counted.
class Reasons {
 public:
  explicit Reasons(std::string url) : text_(std::move(url)) {}
  void add(const std::string& reason) {
    if (reason != last_) flush();
    last_ = reason;
    ++count_;
  }
  std::string text() {
    flush();
    return text_;
  }

 private:
  void flush() {
    if (count_ == 0) return;
    text_ += (std::exchange(first_, false) ? ": " : ", then ") + last_;
    if (count_ > 1) text_ += fmt::format(" ({} times)", count_);
    count_ = 0;
  }

  std::string text_, last_;
  int count_ = 0;
  bool first_ = true;
};

bool has_checksum(const fs::path& file, const std::string& md5) {
  std::error_code error;
  return fs::is_regular_file(file, error) && md5_of_file(file) == md5;
}

/// Tries one mirror until `part` is whole and right; otherwise notes why not.
bool fetch(const RemoteFile& mirror, const fs::path& part, const DownloadOptions& options, Reasons& reasons) {
  std::chrono::milliseconds backoff(options.backoff_ms);
  for (int attempt = 0; attempt < options.attempts; ++attempt) {
    if (attempt > 0) {
      std::this_thread::sleep_for(backoff);
      backoff *= 2;
    }
    const Transfer transfer = continue_transfer(
        mirror.url, part, {.stall_seconds = options.stall_seconds, .progress = options.progress});
    if (transfer.outcome == Transfer::Outcome::complete) {
      const std::string md5 = md5_of_file(part);
      if (md5 == mirror.md5) return true;
      std::error_code ignored;  // a part that stays is found wrong again
      reasons.add(
          fmt::format("MD5 {} of {} bytes, expected {}", md5, fs::file_size(part, ignored), mirror.md5));
      fs::remove(part, ignored);
    } else {
      reasons.add(transfer.reason);
      if (transfer.outcome == Transfer::Outcome::hopeless) return false;
    }
  }
  return false;
}

/// Gives the finished file its name; after a power cut it is there whole or not at all.
void publish(const fs::path& part, const fs::path& target) {
  const FileDescriptor file(part, O_RDONLY);
  if (::fsync(file.get()) != 0)
    fail<OutputError>("{}: cannot be written: {}", part.string(), std::strerror(errno));
  rename_path(part, target);
  sync_folder(target.parent_path());
}

}  // namespace

fs::path download(const std::vector<RemoteFile>& mirrors, const fs::path& folder,
                  const DownloadOptions& options) {
  check(!mirrors.empty(), "download: no address");
  const std::string& name = mirrors.front().name;
  const std::string& md5 = mirrors.front().md5;
  check(!name.empty() && fs::path(name).filename() == name, "download: '{}', expected the name of a file",
        name);
  check(options.attempts >= 1 && options.backoff_ms >= 0 && options.stall_seconds >= 1,
        "download: {} attempts, {} ms between them, {} s of silence, expected 1, 0 and 1 at least",
        options.attempts, options.backoff_ms, options.stall_seconds);
  const fs::path target = fs::absolute(folder) / name;
  if (has_checksum(target, md5)) return target;

  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  if (error) fail<OutputError>("{}: cannot be created: {}", folder.string(), error.message());
  const FileLock lock(target.string() + ".lock");
  if (has_checksum(target, md5)) return target;  // another process was here first

  const fs::path part = target.string() + ".part";
  std::string failures;
  for (const RemoteFile& mirror : mirrors) {
    Reasons reasons(mirror.url);
    if (fetch(mirror, part, options, reasons)) {
      publish(part, target);
      return target;
    }
    failures += (failures.empty() ? "" : "; ") + reasons.text();
  }
  fail<DataError>("{} could not be downloaded: {}. Copy it to {} by hand, or try again: what came is kept",
                  name, failures, folder.string());
}

}  // namespace convoy
