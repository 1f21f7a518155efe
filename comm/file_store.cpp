#include "comm/file_store.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <thread>

#include "comm/file_lock.h"
#include "comm/store_frame.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

using Kind = StoreFrame::Kind;

constexpr double kWrite = 10;  // seconds until a writer gets its turn
constexpr std::chrono::milliseconds kFarewell(1000);
constexpr std::int64_t kMostBytes = std::int64_t{256} << 20;

/// Pauses that grow: most of what is waited for comes soon.
class Pause {
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
  std::string bytes(static_cast<std::size_t>(std::min<std::int64_t>(status.st_size - offset, kMostBytes)),
                    '\0');
  const ssize_t got = pread(file, bytes.data(), bytes.size(), offset);
  bytes.resize(static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  return bytes;
}

bool write_all(int file, const std::string& bytes, std::int64_t offset) {
  return pwrite(file, bytes.data(), bytes.size(), offset) == static_cast<ssize_t>(bytes.size());
}

}  // namespace

FileStore::FileStore(const std::string& path, const StoreMember& member, const Deadline& deadline)
    : path_(path), member_(member) {
  member.rank == 0 ? create(deadline) : join(deadline);
}

FileStore::~FileStore() {
  if (member_.rank == 0) {
    const Deadline farewell(std::chrono::duration<double>(kFarewell).count());
    Pause pause;
    while (is_locked(file_.descriptor(), kRankLocks, member_.world) && !farewell.passed())
      pause.sleep(farewell);
  } else if (rank_0_lives()) {
    return;
  }
  if (is_at_path()) unlink(path_.c_str());
}

/// The file gets its name with its first record in it and its lock held, so that nobody sees less of it.
void FileStore::create(const Deadline& deadline) {
  const std::string other_name = fmt::format("{}.{}", path_, random_token());
  file_ = Socket(open(other_name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  check(bool(file_), "{}: rank 0 cannot make it: {}", name(), std::strerror(errno));
  struct Unlink {
    const std::string& path;
    ~Unlink() { unlink(path.c_str()); }
  } const unlink_other_name{other_name};

  const StoreFrame header{.kind = Kind::hello, .key = member_.job, .value = std::to_string(member_.world)};
  check(write_all(file_.descriptor(), header.bytes(), 0), "{}: rank 0 cannot write it: {}", name(),
        std::strerror(errno));
  read_ = static_cast<std::int64_t>(header.bytes().size());
  check(try_lock(file_.descriptor(), kRankLocks),
        "{}: its file system has no locks ({}): use tcp://HOST:PORT", name(), std::strerror(errno));
  Pause pause;
  while (link(other_name.c_str(), path_.c_str()) != 0) {
    check(errno == EEXIST && !deadline.passed(), "{}: rank 0 cannot make it: {}", name(),
          std::strerror(errno));
    remove_stale();
    pause.sleep(deadline);
  }
}

void FileStore::remove_stale() {
  const Socket stale(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!stale) {
    check(errno == ENOENT, "{}: rank 0 cannot open it: {}", name(), std::strerror(errno));
    return;
  }
  if (!try_lock(stale.descriptor(), kReplaceLock)) return;  // somebody else is at it
  struct stat mine {
  }, at_path{};
  if (fstat(stale.descriptor(), &mine) != 0 || stat(path_.c_str(), &at_path) != 0 ||
      mine.st_ino != at_path.st_ino)
    return;
  check(!is_locked(stale.descriptor(), kRankLocks),
        "{}: another job meets there: give each job a file of its own", name());
  std::string bytes = read_from(stale.descriptor(), 0);
  try {
    check(S_ISREG(mine.st_mode) && (bytes.empty() || take_frame(bytes).has_value()), "not a rendezvous");
  } catch (const Error&) {
    fail<UsageError>("{}: it exists and is no rendezvous; it was not touched", name());
  }
  unlink(path_.c_str());
}

void FileStore::join(const Deadline& deadline) {
  Pause pause;
  while (true) {
    const std::string reason = try_to_join();
    if (reason.empty()) return;
    if (deadline.passed())
      fail<PeerError>("rank {} waited {} s for rank 0 at {}: {}", member_.rank, deadline.seconds(), name(),
                      reason);
    pause.sleep(deadline);
  }
}

std::string FileStore::try_to_join() {
  file_ = Socket(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  if (!file_) return std::strerror(errno);
  if (!rank_0_lives()) return "the file is there, but who made it has gone; a former job's";
  std::string bytes = read_from(file_.descriptor(), 0);
  const std::size_t all = bytes.size();
  std::optional<StoreFrame> header;
  try {
    header = take_frame(bytes);
  } catch (const DataError&) {
    return "it is no rendezvous";
  }
  if (!header || header->kind != Kind::hello) return "it is no rendezvous";
  if (header->key != member_.job)
    fail<PeerError>("rank {} is refused at {}: this is job '{}', not '{}': give each job a file of its own",
                    member_.rank, name(), header->key, member_.job);
  if (header->value != std::to_string(member_.world))
    fail<PeerError>("rank {} is refused at {}: rank 0 waits for {} ranks, rank {} for {}", member_.rank,
                    name(), header->value, member_.rank, member_.world);
  read_ = static_cast<std::int64_t>(all - bytes.size());
  // By its lock, and by what it wrote where it has left meanwhile.
  const std::string came = fmt::format("came/{}", member_.rank), token = random_token();
  bool is_first = try_lock(file_.descriptor(), kRankLocks + member_.rank);
  if (is_first) {
    set(came, token);
    is_first = get(came, Deadline(0)) == token;
  }
  if (!is_first)
    fail<PeerError>(
        "rank {} is refused at {}: a rank {} has come already: either two processes have this rank, or two "
        "jobs this file",
        member_.rank, name(), member_.rank);
  return "";
}

bool FileStore::rank_0_lives() const {
  return member_.rank == 0 || is_locked(file_.descriptor(), kRankLocks);
}

bool FileStore::is_at_path() const {
  struct stat mine {
  }, at_path{};
  return fstat(file_.descriptor(), &mine) == 0 && stat(path_.c_str(), &at_path) == 0 &&
         mine.st_ino == at_path.st_ino && mine.st_dev == at_path.st_dev;
}

void FileStore::read_new() {
  std::string bytes = read_from(file_.descriptor(), read_);
  while (true) {
    const std::size_t before = bytes.size();
    std::optional<StoreFrame> record;
    try {
      record = take_frame(bytes);
    } catch (const DataError& error) {
      fail<PeerError>("{}: somebody else has written into it: {}", name(), error.what());
    }
    if (!record) return;
    values_.emplace(std::move(record->key), std::move(record->value));
    read_ += static_cast<std::int64_t>(before - bytes.size());
  }
}

void FileStore::set(const std::string& key, const std::string& value) {
  const std::string record = StoreFrame{.kind = Kind::set, .key = key, .value = value}.bytes();
  const std::lock_guard lock(mutex_);
  const Deadline deadline(kWrite);
  Pause pause;
  while (!try_lock(file_.descriptor(), kWriteLock)) {
    if (deadline.passed()) fail<PeerError>("{}: no turn to write for {} s", name(), kWrite);
    pause.sleep(deadline);
  }
  struct Unlock {
    int file;
    ~Unlock() { unlock(file, kWriteLock); }
  } const turn{file_.descriptor()};
  read_new();
  if (values_.contains(key)) return;
  // Behind the last whole record: a writer that was killed may have left a piece of one.
  if (ftruncate(file_.descriptor(), read_) != 0 || !write_all(file_.descriptor(), record, read_))
    fail<PeerError>("{}: cannot write: {}", name(), std::strerror(errno));
}

std::optional<std::string> FileStore::get(const std::string& key, const Deadline& deadline) {
  Pause pause;
  while (true) {
    const bool lives = rank_0_lives();  // looked up first: what it wrote before it left is there
    {
      const std::lock_guard lock(mutex_);
      read_new();
      const auto found = values_.find(key);
      if (found != values_.end()) return found->second;
    }
    if (!lives) fail<PeerError>("{}: rank 0 has gone", name());
    if (deadline.passed()) return std::nullopt;
    pause.sleep(deadline);
  }
}

}  // namespace convoy
