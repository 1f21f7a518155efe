#include "engine/io/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <xxhash.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <memory>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/runtime/check.h"

namespace convoy {
namespace {

namespace fs = std::filesystem;

// Network file systems and overloaded disks recover within fractions of a second: 10, 40, 160, 640 ms.
constexpr int kAttempts = 5;
constexpr std::chrono::milliseconds kFirstPause{10};

/// write(2) takes at most about 2 GiB a call; smaller pieces also let a signal in.
constexpr std::size_t kMostPerCall = std::size_t{1} << 26;

std::string reason(int error) { return std::generic_category().message(error); }

bool is_transient(int error) { return error == EINTR || error == EAGAIN || error == EIO; }

/// What went wrong, as (call, errno); errno 0 is success.
struct Outcome {
  const char* call = "";
  int error = 0;
};

/// Calls `attempt` until it succeeds or fails for good. A failed fsync must not be repeated alone (the kernel
/// has dropped the pages, and the next fsync reports success without them), so an attempt is always the whole
/// file.
template <class Attempt>
void with_retries(const fs::path& path, Attempt&& attempt) {
  std::chrono::milliseconds pause = kFirstPause;
  for (int tried = 1;; ++tried) {
    const Outcome outcome = attempt();
    if (outcome.error == 0) return;
    if (!is_transient(outcome.error) || tried == kAttempts)
      fail<OutputError>("{}: {} failed: {}", path.string(), outcome.call, reason(outcome.error));
    std::this_thread::sleep_for(pause);
    pause *= 4;
  }
}

int write_all(int descriptor, std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t written = ::write(descriptor, bytes.data(), std::min(bytes.size(), kMostPerCall));
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    if (written == 0) return EIO;  // POSIX leaves this open; never loop on it
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

/// One attempt at a whole, durable file.
Outcome write_once(const fs::path& path, std::span<const std::string_view> pieces) {
  const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
  if (descriptor < 0) return {"open", errno};
  Outcome outcome{"write", 0};
  for (const std::string_view piece : pieces)
    if (outcome.error == 0) outcome.error = write_all(descriptor, piece);
  if (outcome.error == 0 && ::fsync(descriptor) != 0) outcome = {"fsync", errno};
  // Some file systems report a failed write only here.
  if (::close(descriptor) != 0 && outcome.error == 0) outcome = {"close", errno};
  return outcome;
}

/// Of bytes that come piece by piece.
class Hash {
 public:
  Hash() : state_(XXH64_createState(), XXH64_freeState) { XXH64_reset(state_.get(), 0); }
  void add(const void* bytes, std::size_t count) { XXH64_update(state_.get(), bytes, count); }
  std::string text() const { return fmt::format("{:016x}", XXH64_digest(state_.get())); }

 private:
  std::unique_ptr<XXH64_state_t, decltype(&XXH64_freeState)> state_;
};

fs::path folder_of(const fs::path& path) {
  return path.has_parent_path() ? path.parent_path() : fs::path(".");
}

}  // namespace

void write_file_durably(const fs::path& path, std::string_view bytes) {
  write_file_durably(path, std::span(&bytes, 1));
}

void write_file_durably(const fs::path& path, std::span<const std::string_view> pieces) {
  try {
    with_retries(path, [&] { return write_once(path, pieces); });
  } catch (const OutputError&) {
    ::unlink(path.c_str());
    throw;
  }
}

void write_file_atomically(const fs::path& path, std::string_view bytes) {
  const fs::path temporary = folder_of(path) / (std::string(kTemporaryPrefix) + path.filename().string());
  try {
    write_file_durably(temporary, bytes);
    rename_path(temporary, path);
  } catch (const OutputError&) {
    ::unlink(temporary.c_str());
    throw;
  }
  sync_folder(folder_of(path));
}

void sync_folder(const fs::path& folder) {
  with_retries(folder, [&]() -> Outcome {
    const int descriptor = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) return {"open", errno};
    int error = ::fsync(descriptor) == 0 ? 0 : errno;
    ::close(descriptor);
    // EINVAL: a file system whose folders cannot be synchronised; there is nothing more to do on it.
    if (error == EINVAL) error = 0;
    return {"fsync", error};
  });
}

void rename_path(const fs::path& from, const fs::path& to) {
  with_retries(to, [&]() -> Outcome {
    return {"rename", ::rename(from.c_str(), to.c_str()) == 0 ? 0 : errno};
  });
}

InputFile::InputFile(fs::path path) : path_(std::move(path)) {
  // O_NONBLOCK: opening a FIFO must not wait for a writer.
  descriptor_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor_ < 0) fail<CheckpointError>("{}: cannot be opened: {}", path_.string(), reason(errno));
  struct stat status {};
  const bool known = ::fstat(descriptor_, &status) == 0;
  if (!known || !S_ISREG(status.st_mode)) {
    ::close(descriptor_);
    fail<CheckpointError>("{}: not a regular file", path_.string());
  }
  size_ = static_cast<std::uint64_t>(status.st_size);
}

InputFile::~InputFile() { ::close(descriptor_); }

void InputFile::read(std::uint64_t offset, std::span<std::byte> bytes) const {
  while (!bytes.empty()) {
    const ssize_t count =
        ::pread(descriptor_, bytes.data(), std::min(bytes.size(), kMostPerCall), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) fail<CheckpointError>("{}: read failed: {}", path_.string(), reason(errno));
    if (count == 0)
      fail<CheckpointError>("{}: ends at byte {}, expected {} more", path_.string(), offset, bytes.size());
    offset += static_cast<std::uint64_t>(count);
    bytes = bytes.subspan(static_cast<std::size_t>(count));
  }
}

std::string read_text_file(const fs::path& path, std::uint64_t most) {
  const InputFile file(path);
  if (file.size() > most)
    fail<CheckpointError>("{}: {} bytes, expected at most {}", path.string(), file.size(), most);
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

}  // namespace convoy
