#include "convoy/datasets/download/download.h"

#include <openssl/evp.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "convoy/datasets/download/http_transfer.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

/// The reasons of failed attempts, formatted as one line. Equal consecutive reasons are counted.
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

/// Tries one mirror until `part` is complete and has the right checksum. Returns false, and adds the reasons,
/// if all attempts fail.
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
      std::error_code ignored;  // if the file cannot be removed, the next attempt finds the same error
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

/// Renames the complete file to its final name. After a power failure, the file is complete or absent.
void publish(const fs::path& part, const fs::path& target) {
  const io::FileDescriptor file(part, O_RDONLY);
  if (::fsync(file.get()) != 0)
    fail<OutputError>("{}: cannot be written: {}", part.string(), std::strerror(errno));
  io::rename_path(part, target);
  io::sync_directory(target.parent_path());
}

}  // namespace

fs::path download(const Mirrors& mirrors, const fs::path& directory, const DownloadOptions& options) {
  check(!mirrors.empty(), "download: no mirrors, expected at least one");
  const std::string& name = mirrors.front().name;
  const std::string& md5 = mirrors.front().md5;
  check(!name.empty() && fs::path(name).filename() == name,
        "download: found '{}', expected a file name without a directory", name);
  check(options.attempts >= 1 && options.backoff_ms >= 0 && options.stall_seconds >= 1,
        "download: found {} attempts, backoff {} ms and stall timeout {} s, expected at least 1, 0 and 1",
        options.attempts, options.backoff_ms, options.stall_seconds);
  const fs::path target = fs::absolute(directory) / name;
  if (has_checksum(target, md5)) return target;

  std::error_code error;
  fs::create_directories(target.parent_path(), error);
  if (error) fail<OutputError>("{}: cannot be created: {}", directory.string(), error.message());
  const io::FileLock lock(target.string() + ".lock", options.waiting);
  if (has_checksum(target, md5)) return target;  // downloaded by another process in the meantime

  const fs::path part =
      target.string() + (lock.is_locked() ? ".part" : fmt::format(".part-{:08x}", std::random_device()()));
  std::string failures;
  for (const RemoteFile& mirror : mirrors) {
    Reasons reasons(mirror.url);
    if (fetch(mirror, part, options, reasons)) {
      publish(part, target);
      return target;
    }
    failures += (failures.empty() ? "" : "; ") + reasons.text();
  }
  fail<DataError>(
      "{} could not be downloaded: {}. Copy it to {} manually, or try again; the received part is kept", name,
      failures, directory.string());
}

fs::path cache_directory() {
  // XDG Base Directory Specification: a relative path counts as not set.
  if (const char* cache = std::getenv("XDG_CACHE_HOME"); cache != nullptr && cache[0] == '/')
    return fs::path(cache) / "convoy";
  const char* home = std::getenv("HOME");
  check(home != nullptr && home[0] == '/',
        "cache directory: neither XDG_CACHE_HOME nor HOME is an absolute path; set one of them, or name the "
        "directory of the data set");
  return fs::path(home) / ".cache" / "convoy";
}

std::string md5_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail<DataError>("{}: cannot be read", path.string());

  const std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context(EVP_MD_CTX_new(), &EVP_MD_CTX_free);
  if (!context || EVP_DigestInit_ex(context.get(), EVP_md5(), nullptr) != 1)
    fail<DataError>("{}: the checksum cannot be computed, because OpenSSL has no MD5 (FIPS mode?)",
                    path.string());
  std::vector<char> buffer(std::size_t{1} << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0)
    EVP_DigestUpdate(context.get(), buffer.data(), static_cast<std::size_t>(file.gcount()));
  if (file.bad()) fail<DataError>("{}: reading failed before the end of the file", path.string());

  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int length = 0;
  EVP_DigestFinal_ex(context.get(), digest.data(), &length);
  std::string text;
  for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
  return text;
}

}  // namespace convoy::data
