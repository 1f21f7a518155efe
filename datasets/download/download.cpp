#include "convoy/datasets/download/download.h"

#include <curl/curl.h>
#include <dlfcn.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <memory>
#include <random>
#include <thread>
#include <utility>

#include "convoy/datasets/files.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy::data {
namespace {

namespace fs = std::filesystem;

// ---- One HTTP request whose body is appended to a file ----

struct TransferOptions {
  int stall_seconds = 30;  // the transfer fails if no byte is received for this long
  /// Called from time to time; `total` is -1 if unknown. May throw, which stops the transfer.
  std::function<void(std::int64_t received, std::int64_t total)> progress;
  std::int64_t begin = 0;   // of the part of the file that is wanted
  std::int64_t bytes = -1;  // of this part; -1: to the end
};

/// The result of a transfer.
struct Transfer {
  enum class Outcome {
    complete,     // the file is complete
    interrupted,  // a retry may succeed; the received part is kept
    hopeless,     // a retry would fail again: not found, unknown host, rejected certificate
  };
  Outcome outcome = Outcome::complete;
  /// Empty if complete; else for example "HTTP 404" or "connection reset after 4096 of 9999 bytes".
  std::string reason = {};
  std::int64_t file_bytes = -1;  // the size of the whole file, if only a part was requested
};

using Clock = std::chrono::steady_clock;
using Outcome = Transfer::Outcome;

constexpr long kConnectSeconds = 10;
constexpr auto kProgressInterval = std::chrono::milliseconds(100);

/// Returns a function of libcurl, which the first call loads: it brings 40 libraries, which take a process as long as
/// the rest of its start. Thread-safe.
void* curl_function(const char* name) {
  static void* const library = [] {
    void* const loaded = dlopen("libcurl.so.4", RTLD_NOW);
    if (loaded == nullptr) fail<DataError>("downloads need libcurl, which cannot be loaded: {}", dlerror());
    return loaded;
  }();
  return dlsym(library, name);
}
#define CONVOY_CURL(name) reinterpret_cast<decltype(&name)>(curl_function(#name))

/// Returns a new handle of libcurl, which the first call initializes; null without memory. Thread-safe.
CURL* new_handle() {
  static const CURLcode result = CONVOY_CURL(curl_global_init)(CURL_GLOBAL_DEFAULT);
  if (result != CURLE_OK)
    fail<DataError>("libcurl cannot be initialized: {}", CONVOY_CURL(curl_easy_strerror)(result));
  return CONVOY_CURL(curl_easy_init)();
}

/// A request for the rest of the file that `part` contains so far (HTTP Range), which it appends, or for the whole file
/// in place of `part` if the server sends that. Supports http and https. libcurl calls on_header(), on_body() and,
/// periodically, on_time().
class Request {
 public:
  Request(const std::string& url, const std::filesystem::path& part, const TransferOptions& options)
      : part_(part),
        options_(options),
        file_(part, O_WRONLY | O_CREAT),
        curl_(new_handle(), CONVOY_CURL(curl_easy_cleanup)) {
    if (!curl_) fail<DataError>("libcurl cannot be used: out of memory");
    struct stat status = {};
    if (::fstat(file_.get(), &status) != 0) fail_to_write();
    received_ = resumed_at_ = status.st_size;

    set(CURLOPT_URL, url.c_str());
    const bool is_part = options_.bytes >= 0;
    if (resumed_at_ > 0 || is_part)
      set(CURLOPT_RANGE, fmt::format("{}-{}", options_.begin + resumed_at_,
                                     is_part ? std::to_string(options_.begin + options_.bytes - 1) : "")
                             .c_str());
    set(CURLOPT_PROTOCOLS_STR, "http,https");
    set(CURLOPT_REDIR_PROTOCOLS_STR, "http,https");
    set(CURLOPT_FOLLOWLOCATION, 1L);
    set(CURLOPT_MAXREDIRS, 10L);
    set(CURLOPT_FAILONERROR, 1L);  // do not write the body of an error page
    set(CURLOPT_NOSIGNAL, 1L);     // required with several threads
    set(CURLOPT_CONNECTTIMEOUT, kConnectSeconds);
    set(CURLOPT_USERAGENT, "convoy");
    set(CURLOPT_ERRORBUFFER, error_text_);
    set(
        CURLOPT_HEADERFUNCTION, +[](char* data, std::size_t, std::size_t size, void* self) {
          return static_cast<Request*>(self)->on_header({data, size}), size;
        });
    set(CURLOPT_HEADERDATA, this);
    set(
        CURLOPT_WRITEFUNCTION, +[](char* data, std::size_t, std::size_t size, void* self) {
          return static_cast<Request*>(self)->on_body(data, size) ? size : 0;
        });
    set(CURLOPT_WRITEDATA, this);
    set(
        CURLOPT_XFERINFOFUNCTION, +[](void* self, curl_off_t, curl_off_t, curl_off_t, curl_off_t) {
          return static_cast<Request*>(self)->on_time() ? 0 : 1;
        });
    set(CURLOPT_XFERINFODATA, this);
    set(CURLOPT_NOPROGRESS, 0L);
  }

  /// Blocks until the transfer ends. Throws OutputError if `part` cannot be written, and rethrows exceptions of
  /// TransferOptions::progress.
  Transfer run() {
    last_byte_ = Clock::now();
    const CURLcode result = CONVOY_CURL(curl_easy_perform)(curl_.get());
    if (failure_) std::rethrow_exception(failure_);
    if (result == CURLE_OK && options_.bytes >= 0 && received_ != options_.bytes)
      return {Outcome::interrupted,
              fmt::format("a body that ends after {} of {} bytes", received_, options_.bytes)};
    if (result == CURLE_OK) {
      if (options_.progress) options_.progress(received_, received_);
      return {.file_bytes = file_bytes_};
    }
    return explain(result);
  }

 private:
  template <class T>
  void set(CURLoption option, T value) {
    const CURLcode result = CONVOY_CURL(curl_easy_setopt)(curl_.get(), option, value);
    if (result != CURLE_OK)
      fail<DataError>("libcurl rejects an option: {}", CONVOY_CURL(curl_easy_strerror)(result));
  }

  /// Reads the header lines of every response. Those of a redirect are discarded at the next status line.
  void on_header(std::string_view line) {
    constexpr std::string_view kRange = "content-range: bytes ";
    if (line.starts_with("HTTP/")) {
      range_begin_ = file_bytes_ = -1;
      body_begun_ = false;
    } else if (line.size() > kRange.size() &&
               CONVOY_CURL(curl_strnequal)(line.data(), kRange.data(), kRange.size())) {
      std::from_chars(line.data() + kRange.size(), line.data() + line.size(), range_begin_);
      if (const std::size_t slash = line.find('/'); slash != std::string_view::npos)
        std::from_chars(line.data() + slash + 1, line.data() + line.size(), file_bytes_);
    }
  }

  bool on_body(const char* data, std::size_t size) {
    try {
      if (!body_begun_ && !begin_body()) return false;
      body_begun_ = true;
      if (options_.bytes >= 0 && received_ + static_cast<std::int64_t>(size) > options_.bytes)
        return refuse(fmt::format("a body of more than {} bytes", options_.bytes));
      for (std::size_t written = 0; written < size;) {
        const ssize_t count = ::pwrite(file_.get(), data + written, size - written, received_);
        if (count < 0 && errno == EINTR) continue;
        if (count <= 0) fail_to_write();
        written += static_cast<std::size_t>(count);
        received_ += count;
      }
      last_byte_ = Clock::now();
      return true;
    } catch (...) {
      failure_ = std::current_exception();  // exceptions must not propagate through libcurl
      return false;
    }
  }

  /// Decides where the body is written: after the existing part, or instead of it if the server sends the
  /// whole file. Returns false if the response fits neither.
  bool begin_body() {
    const long status = http_status();
    if (status == 200 && options_.bytes < 0) {
      received_ = 0;
      if (resumed_at_ > 0 && ::ftruncate(file_.get(), 0) != 0) fail_to_write();
    } else if (status != 206) {
      return refuse(fmt::format("HTTP {}, expected 206: the server does not send parts of files", status));
    } else if (range_begin_ != options_.begin + resumed_at_ || (options_.bytes >= 0 && file_bytes_ < 0)) {
      return refuse(
          fmt::format("HTTP 206 with bytes from {} of {}, expected from {} of a known size (-1: unknown)",
                      range_begin_, file_bytes_, options_.begin + resumed_at_));
    }
    curl_off_t length = -1;
    CONVOY_CURL(curl_easy_getinfo)(curl_.get(), CURLINFO_CONTENT_LENGTH_DOWNLOAD_T, &length);
    total_ = length >= 0 ? received_ + length : -1;
    return true;
  }

  /// Discards the part, so that the next attempt requests all of it, and returns false.
  bool refuse(std::string reason) {
    refusal_ = std::move(reason);
    if (::ftruncate(file_.get(), 0) != 0) fail_to_write();
    return false;
  }

  /// Called by libcurl for every packet, and about once per second without any. Returns false to abort.
  bool on_time() {
    const Clock::time_point now = Clock::now();
    if (now - last_byte_ > std::chrono::seconds(options_.stall_seconds)) return false;
    if (!options_.progress || !body_begun_ || now - last_progress_ < kProgressInterval) return true;
    last_progress_ = now;
    try {
      options_.progress(received_, total_);
      return true;
    } catch (...) {
      failure_ = std::current_exception();
      return false;
    }
  }

  Transfer explain(CURLcode result) const {
    const std::string position = !body_begun_ ? ""
                                 : total_ < 0 ? fmt::format(" after {} bytes", received_)
                                              : fmt::format(" after {} of {} bytes", received_, total_);
    const std::string detail = error_text_[0] != '\0' ? error_text_ : CONVOY_CURL(curl_easy_strerror)(result);
    // The caller of download() has other mirrors, and that of read_part() has none.
    const Outcome unreachable = options_.bytes < 0 ? Outcome::hopeless : Outcome::interrupted;
    switch (result) {
      case CURLE_HTTP_RETURNED_ERROR: {
        const long status = http_status();
        if (status == 416 && resumed_at_ > 0 && options_.bytes < 0)
          return {};  // the file is complete; the checksum is verified later
        const bool is_temporary =
            status >= 500 || status == 408 || status == 429;  // overload, too slow, too many
        return {is_temporary ? Outcome::interrupted : Outcome::hopeless, fmt::format("HTTP {}", status)};
      }
      case CURLE_COULDNT_RESOLVE_HOST:
      case CURLE_COULDNT_RESOLVE_PROXY: return {unreachable, detail};
      case CURLE_URL_MALFORMAT:
        return {Outcome::hopeless, detail + ", expected http://HOST/PATH, with %20 for a blank"};
      case CURLE_UNSUPPORTED_PROTOCOL:
      case CURLE_PEER_FAILED_VERIFICATION:
      case CURLE_SSL_CACERT_BADFILE:
      case CURLE_TOO_MANY_REDIRECTS: return {Outcome::hopeless, detail};
      case CURLE_OPERATION_TIMEDOUT:
        return {unreachable, fmt::format("no connection within {} s", kConnectSeconds)};
      case CURLE_ABORTED_BY_CALLBACK:
        return {Outcome::interrupted, fmt::format("no byte for {} s", options_.stall_seconds) + position};
      case CURLE_WRITE_ERROR:  // a whole file in place of a part comes again
        return {http_status() == 200 ? Outcome::hopeless : Outcome::interrupted, refusal_};
      default: return {Outcome::interrupted, detail + position};
    }
  }

  long http_status() const {
    long status = 0;
    CONVOY_CURL(curl_easy_getinfo)(curl_.get(), CURLINFO_RESPONSE_CODE, &status);
    return status;
  }

  [[noreturn]] void fail_to_write() const {
    fail<OutputError>("{}: cannot be written after {} bytes: {}", part_.string(), received_,
                      std::strerror(errno));
  }

  const std::filesystem::path& part_;
  const TransferOptions& options_;
  io::FileDescriptor file_;
  std::unique_ptr<CURL, decltype(&curl_easy_cleanup)> curl_;
  std::int64_t resumed_at_ = 0;    // file size at the start
  std::int64_t received_ = 0;      // file size now
  std::int64_t total_ = -1;        // file size at the end; -1: unknown
  std::int64_t range_begin_ = -1;  // from the Content-Range header
  std::int64_t file_bytes_ = -1;   // likewise
  bool body_begun_ = false;
  std::string refusal_;
  std::exception_ptr failure_;
  Clock::time_point last_byte_, last_progress_;
  char error_text_[CURL_ERROR_SIZE] = "";
};

/// Calls `attempt` until its transfer is complete or hopeless, at most options.attempts times. Returns the last one.
template <class Attempt>
Transfer repeat_transfer(const HttpOptions& options, const Attempt& attempt) {
  std::chrono::milliseconds backoff(options.backoff_ms);
  for (int number = 1;; ++number, backoff *= 2) {
    Transfer transfer = attempt();
    if (transfer.outcome != Outcome::interrupted) return transfer;
    if (number >= options.attempts)
      return {transfer.outcome, fmt::format("{} ({} attempts)", transfer.reason, number)};
    std::this_thread::sleep_for(backoff);
  }
}

bool has_checksum(const fs::path& file, const std::string& md5) {
  std::error_code error;
  return fs::is_regular_file(file, error) && (md5.empty() || md5_of_file(file) == md5);
}

/// Requests the rest of `part` from a mirror. A file with a wrong checksum is removed, and counts as interrupted.
Transfer request_rest(const RemoteFile& mirror, const fs::path& part, const DownloadOptions& options) {
  const TransferOptions rest{.stall_seconds = options.stall_seconds, .progress = options.progress};
  Transfer transfer = Request(mirror.url, part, rest).run();
  if (transfer.outcome != Outcome::complete || mirror.md5.empty()) return transfer;
  const std::string md5 = md5_of_file(part);
  if (md5 == mirror.md5) return transfer;
  std::error_code ignored;  // if the file cannot be removed, the next attempt finds the same error
  const auto bytes = fs::file_size(part, ignored);
  fs::remove(part, ignored);
  return {Outcome::interrupted, fmt::format("MD5 {} of {} bytes, expected {}", md5, bytes, mirror.md5)};
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
    const Transfer transfer = repeat_transfer(options, [&] { return request_rest(mirror, part, options); });
    if (transfer.outcome == Outcome::complete) {
      publish(part, target);
      return target;
    }
    failures += fmt::format("{}{}: {}", failures.empty() ? "" : "; ", mirror.url, transfer.reason);
  }
  fail<DataError>(
      "{} could not be downloaded: {}. Copy it to {} manually, or try again; the received part is kept", name,
      failures, directory.string());
}

bool is_url(std::string_view place) { return place.starts_with("http://") || place.starts_with("https://"); }

std::string read_part(const std::string& url, std::uint64_t begin, std::uint64_t bytes,
                      const HttpOptions& options, std::uint64_t& total) {
  const int memory = ::memfd_create("part", MFD_CLOEXEC);
  if (memory < 0) fail_read<DataError>(errno, "{}: no memory for {} bytes", url, bytes);
  const io::FileDescriptor file(fmt::format("/proc/self/fd/{}", memory), O_RDWR);
  ::close(memory);
  const fs::path part = fmt::format("/proc/self/fd/{}", file.get());
  const TransferOptions part_only{.stall_seconds = options.stall_seconds,
                                  .begin = static_cast<std::int64_t>(begin),
                                  .bytes = static_cast<std::int64_t>(bytes)};
  const Transfer result = repeat_transfer(options, [&] { return Request(url, part, part_only).run(); });
  if (result.outcome == Outcome::hopeless) fail<DataError>("{}: {}", url, result.reason);
  if (result.outcome == Outcome::interrupted)
    fail<StorageError>("{}: bytes from {} on: {}", url, begin, result.reason);
  total = static_cast<std::uint64_t>(result.file_bytes);
  return read_file(part, bytes);
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

namespace {

/// A checksum by OpenSSL, in hexadecimal digits.
class Digest {
 public:
  Digest(const EVP_MD* algorithm, const std::string& name) : context_(EVP_MD_CTX_new(), &EVP_MD_CTX_free) {
    if (!context_ || EVP_DigestInit_ex(context_.get(), algorithm, nullptr) != 1)
      fail<DataError>("{}: the checksum cannot be computed, because OpenSSL has no {} (FIPS mode?)", name,
                      algorithm == EVP_md5() ? "MD5" : "SHA-256");
  }
  void add(std::string_view bytes) { EVP_DigestUpdate(context_.get(), bytes.data(), bytes.size()); }
  std::string finish() {
    std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
    unsigned int length = 0;
    EVP_DigestFinal_ex(context_.get(), digest.data(), &length);
    std::string text;
    for (unsigned int i = 0; i < length; ++i) text += fmt::format("{:02x}", digest[i]);
    return text;
  }

 private:
  std::unique_ptr<EVP_MD_CTX, decltype(&EVP_MD_CTX_free)> context_;
};

}  // namespace

std::string md5_of_file(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) fail_read<DataError>(errno, "{}: cannot be read", path.string());

  Digest digest(EVP_md5(), path.string());
  std::vector<char> buffer(std::size_t{1} << 20);
  while (file.read(buffer.data(), static_cast<std::streamsize>(buffer.size())), file.gcount() > 0)
    digest.add({buffer.data(), static_cast<std::size_t>(file.gcount())});
  if (file.bad()) fail_read<DataError>(errno, "{}: reading failed before the end of the file", path.string());
  return digest.finish();
}

std::string sha256_of(std::span<const std::string_view> parts) {
  Digest digest(EVP_sha256(), "weights");
  for (const std::string_view part : parts) digest.add(part);
  return digest.finish();
}

}  // namespace convoy::data
