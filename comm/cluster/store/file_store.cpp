#include "convoy/comm/cluster/store/store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <thread>

#include "convoy/comm/cluster/net/secret.h"
#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/cluster/store/store_frame.h"
#include "convoy/comm/core/file_lock.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

using Kind = StoreFrame::Kind;

constexpr double kWriteLockSeconds = 10;  // timeout for the write lock
constexpr double kFailurePoll = 0.25;     // seconds between checks whether a rank has failed
constexpr std::chrono::milliseconds kShutdownWait(1000);
constexpr std::int64_t kMaxBytes = std::int64_t{256} << 20;

/// Pauses between polls, which grow from 1 to 20 ms.
class Backoff {
 public:
  void sleep(const Deadline& deadline) {
    std::this_thread::sleep_for(std::min<Deadline::Clock::duration>(next_, deadline.left()));
    next_ = std::min(2 * next_, std::chrono::milliseconds(20));
  }

 private:
  std::chrono::milliseconds next_{1};
};

std::string read_from(int file, std::int64_t offset) {
  struct stat status {};
  if (fstat(file, &status) != 0 || status.st_size <= offset) return "";
  std::string bytes(static_cast<std::size_t>(std::min<std::int64_t>(status.st_size - offset, kMaxBytes)),
                    '\0');
  const ssize_t got = pread(file, bytes.data(), bytes.size(), offset);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

bool write_all(int file, const std::string& bytes, std::int64_t offset) {
  return pwrite(file, bytes.data(), bytes.size(), offset) == static_cast<ssize_t>(bytes.size());
}

class FileStore final : public Store {
 public:
  FileStore(const std::string& path, const StoreMember& member, const Deadline& deadline)
      : path_(path), member_(member) {
    member.rank == 0 ? create(deadline) : join(deadline);
  }

  ~FileStore() override {
    if (member_.rank == 0) {
      const Deadline shutdown(std::chrono::duration<double>(kShutdownWait).count());
      Backoff backoff;
      while (is_locked(file_.descriptor(), kRankLocks, member_.world_size) && !shutdown.passed())
        backoff.sleep(shutdown);
    } else if (rank_0_is_alive()) {
      return;
    }
    if (is_at_path(file_)) unlink(path_.c_str());
  }

  std::string name() const override { return "file://" + path_; }
  void set(const std::string& key, const std::string& value, double /*answer_seconds*/) override {
    check(may_set(member_.rank, key), "{}: rank {} may not set '{}'", name(), member_.rank, key);
    const std::string record = StoreFrame{.kind = Kind::set, .key = key, .value = value}.bytes();
    const std::lock_guard lock(mutex_);
    const Deadline deadline(kWriteLockSeconds);
    Backoff backoff;
    while (!try_lock(file_.descriptor(), kWriteLock)) {
      if (deadline.passed()) fail<PeerError>("{}: waited {} s for the write lock", name(), kWriteLockSeconds);
      backoff.sleep(deadline);
    }
    struct Unlock {
      int file;
      ~Unlock() { unlock(file, kWriteLock); }
    } const turn{file_.descriptor()};
    read_new();
    if (values_.contains(key)) return;
    // Appends after the last complete record: a killed writer may have left an incomplete one.
    if (ftruncate(file_.descriptor(), read_) != 0 || !write_all(file_.descriptor(), record, read_))
      fail<PeerError>("{}: cannot write the file: {}", name(), std::strerror(errno));
  }

  std::optional<std::string> get(const std::string& key, const Deadline& deadline,
                                 double /*answer_seconds*/) override {
    Backoff backoff;
    while (true) {
      // Checked before reading, so that the last values of rank 0 are found.
      const bool is_alive = rank_0_is_alive();
      {
        const std::lock_guard lock(mutex_);
        read_new();
        const auto found = values_.find(key);
        if (found != values_.end()) return found->second;
      }
      if (!is_alive) fail<PeerError>("{}: rank 0 has exited", name());
      if (deadline.passed()) return std::nullopt;
      backoff.sleep(deadline);
    }
  }

  std::optional<std::vector<std::string>> gather(const std::string& what, const std::string& local,
                                                 const Deadline& deadline, double answer_seconds) override {
    set(fmt::format("{}/{}", what, member_.rank), local, answer_seconds);
    std::vector<std::string> all;
    while (std::ssize(all) < member_.world_size) {
      const double left = std::chrono::duration<double>(deadline.left()).count();
      std::optional<std::string> value =
          get(fmt::format("{}/{}", what, all.size()), Deadline(std::min(left, kFailurePoll)), answer_seconds);
      if (!value && (deadline.passed() || get(kFailureKey, Deadline(0), answer_seconds))) return std::nullopt;
      if (value) all.push_back(std::move(*value));
    }
    return all;
  }

  std::vector<int> missing(const std::string& what) override {
    std::vector<int> ranks;
    for (int rank = 0; rank < member_.world_size; ++rank)
      if (!get(fmt::format("{}/{}", what, rank), Deadline(0), 0)) ranks.push_back(rank);
    return ranks;
  }

 private:
  /// Creates the file under a temporary name, writes the header, takes the lock, and then links it to its
  /// path. So the other ranks never see an incomplete file.
  void create(const Deadline& deadline) {
    const std::string temporary_name = fmt::format("{}.{}", path_, random_token());
    file_ = Socket(open(temporary_name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
    check(bool(file_), "{}: rank 0 cannot create the file: {}", name(), std::strerror(errno));
    const std::unique_ptr<const char, int (*)(const char*)> temporary(temporary_name.c_str(), unlink);

    const StoreFrame header{
        .kind = Kind::hello, .key = member_.job, .value = std::to_string(member_.world_size)};
    check(write_all(file_.descriptor(), header.bytes(), 0), "{}: rank 0 cannot write the file: {}", name(),
          std::strerror(errno));
    read_ = static_cast<std::int64_t>(header.bytes().size());
    check(try_lock(file_.descriptor(), kRankLocks),
          "{}: the file system does not support locks ({}); use tcp://HOST:PORT", name(),
          std::strerror(errno));
    Backoff backoff;
    while (link(temporary_name.c_str(), path_.c_str()) != 0) {
      check(errno == EEXIST && !deadline.passed(), "{}: rank 0 cannot create the file: {}", name(),
            std::strerror(errno));
      remove_stale();
      backoff.sleep(deadline);
    }
  }

  /// Removes the file of a job that has ended. Throws UsageError if a running job uses the file, or if it has
  /// another format.
  void remove_stale() {
    const Socket stale(open(path_.c_str(), O_RDWR | O_CLOEXEC));
    if (!stale) {
      check(errno == ENOENT, "{}: rank 0 cannot open the file: {}", name(), std::strerror(errno));
      return;
    }
    if (!try_lock(stale.descriptor(), kReplaceLock)) return;  // another process is replacing the file
    if (!is_at_path(stale)) return;
    check(!is_locked(stale.descriptor(), kRankLocks),
          "{}: another job uses the file; use a different file for each job", name());
    std::string bytes = read_from(stale.descriptor(), 0);
    try {
      check(std::filesystem::is_regular_file(path_) && (bytes.empty() || take_frame(bytes).has_value()),
            "not a rendezvous file");
    } catch (const Error&) {
      fail<UsageError>("{}: the file exists and is not a rendezvous file; it was not changed", name());
    }
    unlink(path_.c_str());
  }

  void join(const Deadline& deadline) {
    Backoff backoff;
    while (true) {
      const std::string reason = try_to_join();
      if (reason.empty()) return;
      if (deadline.passed())
        fail<PeerError>("rank {} waited {} s for rank 0 at {}: {}", member_.rank, deadline.seconds(), name(),
                        reason);
      backoff.sleep(deadline);
    }
  }

  /// Returns an empty string if this rank has joined, otherwise the reason to retry. Throws PeerError if the
  /// rank is refused.
  std::string try_to_join() {
    file_ = Socket(open(path_.c_str(), O_RDWR | O_CLOEXEC));
    if (!file_) return std::strerror(errno);
    // Another user of a shared directory must not pass for rank 0. Root may own files under another name, by
    // NFS with root_squash.
    struct stat status {};
    if (fstat(file_.descriptor(), &status) != 0) return std::strerror(errno);
    if (geteuid() != 0 && status.st_uid != geteuid())
      return fmt::format("it belongs to user {}, and this rank to user {}", status.st_uid, geteuid());
    if (!rank_0_is_alive()) return "the file is from an earlier job, which has ended";
    std::string bytes = read_from(file_.descriptor(), 0);
    const std::size_t all = bytes.size();
    std::optional<StoreFrame> header;
    try {
      header = take_frame(bytes);
    } catch (const DataError&) {
      return "it is not a rendezvous file";
    }
    if (!header || header->kind != Kind::hello) return "it is not a rendezvous file";
    if (header->key != member_.job)
      fail<PeerError>(
          "rank {} is refused at {}: the file belongs to job '{}', not '{}'; use a different file for each job",
          member_.rank, name(), header->key, member_.job);
    if (header->value != std::to_string(member_.world_size))
      fail<PeerError>("rank {} is refused at {}: rank 0 has a world size of {}, rank {} of {}", member_.rank,
                      name(), header->value, member_.rank, member_.world_size);
    read_ = static_cast<std::int64_t>(all - bytes.size());
    // A rank has joined if it holds its lock, or if it has written its token and exited.
    const std::string joined_key = fmt::format("came/{}", member_.rank), token = random_token();
    bool is_first = try_lock(file_.descriptor(), kRankLocks + member_.rank);
    if (is_first) {
      set(joined_key, token, kAnswerSeconds);
      is_first = get(joined_key, Deadline(0), kAnswerSeconds) == token;
    }
    if (!is_first)
      fail<PeerError>(
          "rank {} is refused at {}: a rank {} has already joined: either two processes have this rank, or two "
          "jobs use this file",
          member_.rank, name(), member_.rank);
    return "";
  }

  void read_new() {
    const std::string bytes = read_from(file_.descriptor(), read_);
    for (std::string_view left = bytes;;) {
      const std::size_t before = left.size();
      std::optional<StoreFrame> record;
      try {
        record = take_frame(left);
      } catch (const DataError& error) {
        fail<PeerError>("{}: another program has written to the file: {}", name(), error.what());
      }
      if (!record) return;
      values_.emplace(std::move(record->key), std::move(record->value));
      read_ += static_cast<std::int64_t>(before - left.size());
    }
  }

  bool rank_0_is_alive() const { return member_.rank == 0 || is_locked(file_.descriptor(), kRankLocks); }

  bool is_at_path(const Socket& file) const {
    struct stat local {
    }, at_path{};
    return fstat(file.descriptor(), &local) == 0 && stat(path_.c_str(), &at_path) == 0 &&
           local.st_ino == at_path.st_ino && local.st_dev == at_path.st_dev;
  }

  const std::string path_;
  const StoreMember member_;
  std::mutex mutex_;
  Socket file_;
  std::int64_t read_ = 0;  // size in bytes of the complete records read so far
  std::map<std::string, std::string> values_;
};

}  // namespace

std::unique_ptr<Store> open_file_store(const std::string& path, const StoreMember& member,
                                       const Deadline& deadline) {
  return std::make_unique<FileStore>(path, member, deadline);
}

}  // namespace convoy::dist
