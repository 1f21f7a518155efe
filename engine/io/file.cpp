#include "convoy/engine/io/file.h"

#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <xxhash.h>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace convoy::io {
namespace {

namespace fs = std::filesystem;

// Network file systems and overloaded disks recover within fractions of a second. Pauses between attempts:
// 10, 40, 160 and 640 ms.
constexpr int kMaxAttempts = 5;
constexpr std::chrono::milliseconds kFirstPause{10};

/// Bytes per read or write call. write(2) accepts at most about 2 GiB; smaller calls can be interrupted
/// sooner.
constexpr std::size_t kMaxPerCall = std::size_t{1} << 26;

std::string reason(int error) { return std::generic_category().message(error); }

/// The result of an attempt: the last system call and its errno; 0 means success.
struct Outcome {
  const char* call = "";
  int error = 0;
};

/// Calls `attempt` until it succeeds, fails with a permanent error, or has failed kMaxAttempts times. A
/// failed fsync must not be retried alone: the kernel may have dropped the pages, and the next fsync reports
/// success without them. An attempt therefore writes the whole file.
template <class Attempt>
void with_retries(const fs::path& path, Attempt&& attempt) {
  std::chrono::milliseconds pause = kFirstPause;
  for (int tried = 1;; ++tried) {
    const Outcome outcome = attempt();
    if (outcome.error == 0) return;
    if (!is_transient(outcome.error) || tried == kMaxAttempts)
      fail<OutputError>("{}: {} failed: {}", path.string(), outcome.call, reason(outcome.error));
    std::this_thread::sleep_for(pause);
    pause *= 4;
  }
}

int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kMaxPerCall));
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (written == 0) return EIO;  // unspecified by POSIX; avoids an endless loop
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// Makes one attempt to write a whole file durably. `flag` is O_TRUNC, or O_EXCL for a new file.
Outcome write_once(const fs::path& path, std::span<const std::string_view> pieces, int flag) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | flag | O_CLOEXEC, 0666);
  if (descriptor < 0) return {"open", errno};
  Outcome outcome{"write", 0};
  for (const std::string_view piece : pieces)
    if (outcome.error == 0) outcome.error = write_all(descriptor, piece);
  if (outcome.error == 0 && ::fsync(descriptor) != 0) outcome = {"fsync", errno};
  // Some file systems report a failed write only on close.
  if (::close(descriptor) != 0 && outcome.error == 0) outcome = {"close", errno};
  return outcome;
}

/// An incremental xxhash64.
class Hash {
 public:
  Hash() : state_(XXH64_createState(), XXH64_freeState) { XXH64_reset(state_.get(), 0); }
  void add(const void* bytes, std::size_t count) { XXH64_update(state_.get(), bytes, count); }
  std::string text() const { return fmt::format("{:016x}", XXH64_digest(state_.get())); }

 private:
  std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> state_;
};

fs::path directory_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

void write_file_durably(const fs::path& path, std::string_view bytes) {
  write_file_durably(path, std::span(&bytes, 1));
}

void write_file_durably(const fs::path& path, std::span<const std::string_view> pieces) {
  try {
    with_retries(path, [&] { return write_once(path, pieces, O_TRUNC); });
  } catch (const OutputError&) {
    ::unlink(path.c_str());
    throw;
  }
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  // A random name, under which no other user can have planted a symbolic link.
  const fs::path temporary =
      directory_of(path) /
      fmt::format("{}{}.{:08x}", kTemporaryPrefix, path.filename().string(), std::random_device()());
  with_retries(path, [&] {
    const Outcome outcome = write_once(temporary, std::span(&bytes, 1), O_EXCL);
    if (outcome.error != 0) ::unlink(temporary.c_str());
    return outcome;
  });
  try {
    rename_path(temporary, path);
  } catch (const OutputError&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_directory(directory_of(path));
}

void sync_directory(const fs::path& directory) {
  with_retries(directory, [&]() -> Outcome {
    const int descriptor = ::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return {"open", errno};
    int error = ::fsync(descriptor) == 0 ? 0 : errno;
    ::close(descriptor);
    // EINVAL: the file system cannot synchronize directories.
    if (error == EINVAL) error = 0;
    return {"fsync", error};
  });
}

void rename_path(const fs::path& from, const fs::path& to) {
  with_retries(to, [&]() -> Outcome {
    return {"rename", ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno};
  });
}

LockResult try_lock(int descriptor) {
  while (::flock(descriptor, LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK) return LockResult::held;
    if (errno != EINTR) return LockResult::unsupported;
  }
  return LockResult::acquired;
}

std::shared_ptr<void> map_file(int descriptor, std::uint64_t offset, std::size_t bytes, MapAccess access,
                               const fs::path& path) {
  if (bytes == 0) return nullptr;
  const std::size_t lead =
      offset % static_cast<std::uint64_t>(::sysconf(_SC_PAGE_SIZE));  // in the first page
  const int protection = access == MapAccess::write ? PROT_READ | PROT_WRITE : PROT_READ;
  void* const begin =
      ::mmap(nullptr, lead + bytes, protection, MAP_SHARED, descriptor, static_cast<off_t>(offset - lead));
  if (begin == MAP_FAILED) {
    if (access == MapAccess::write)
      fail<OutputError>("{}: cannot be mapped: {}", path.string(), reason(errno));
    fail_read<CheckpointError>(errno, "{}: cannot be mapped", path.string());
  }
  const std::shared_ptr<void> mapping(begin, [size = lead + bytes](void* pages) { ::munmap(pages, size); });
  return {mapping, static_cast<std::byte*>(begin) + lead};
}

InputFile::InputFile(fs::path path) : path_(std::move(path)) {
  // O_NONBLOCK, so that opening a FIFO does not wait for a writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail_read<CheckpointError>(errno, "{}: cannot be opened", path_.string());
  struct stat status {};
  const int error = ::fstat(descriptor_, &status) == 0 ? 0 : errno;
  if (error != 0 || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    if (error != 0) fail_read<CheckpointError>(error, "{}: cannot be opened", path_.string());
    fail<CheckpointError>("{}: not a regular file", path_.string());
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data(), std::min(bytes.size(), kMaxPerCall), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail_read<CheckpointError>(errno, "{}: read failed", path_.string());
    if (count == 0)
      fail<CheckpointError>("{}: file ends at byte {}, expected {} more bytes", path_.string(), offset,
                            bytes.size());
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

std::string read_text_file(const fs::path& path, std::uint64_t max_bytes) {
  const InputFile file(path);
  if (file.size() > max_bytes)
    fail<CheckpointError>("{}: {} bytes, expected at most {}", path.string(), file.size(), max_bytes);
  std::string text(static_cast<std::size_t>(file.size()), '\0');
  file.read(0, std::as_writable_bytes(std::span(text)));
  return text;
}

std::string hash_bytes(std::string_view bytes) { return hash_bytes(std::span(&bytes, 1)); }

std::string hash_bytes(std::span<const std::string_view> pieces) {
  Hash hash;
  for (const std::string_view piece : pieces) hash.add(piece.data(), piece.size());
  return hash.text();
}

std::string hash_file(const fs::path& path) {
  const InputFile file(path);
  Hash hash;
  std::vector<std::byte> piece(std::size_t{1} << 20);
  for (std::uint64_t offset = 0; offset < file.size();) {
    const auto bytes = static_cast<std::size_t>(std::min<std::uint64_t>(piece.size(), file.size() - offset));
    file.read(offset, std::span(piece).first(bytes));
    hash.add(piece.data(), bytes);
    offset += bytes;
  }
  return hash.text();
}

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
