#include "convoy/comm/cluster/store/meeting_file.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <memory>
#include <sstream>

#include "convoy/comm/cluster/net/secret.h"
#include "convoy/comm/cluster/store/store_frame.h"
#include "convoy/comm/core/file_lock.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kMaxBytes = 16384;

/// Returns the message in the file; nullopt if it is none.
std::optional<StoreFrame> message_in(const Socket& file) {
  std::string bytes(kMaxBytes, '\0');
  bytes.resize(
      static_cast<std::size_t>(std::max<ssize_t>(pread(file.descriptor(), bytes.data(), kMaxBytes, 0), 0)));
  try {
    std::optional<StoreFrame> message = take_frame(bytes);
    return message && message->kind == StoreFrame::Kind::hello ? message : std::nullopt;
  } catch (const DataError&) {
    return std::nullopt;
  }
}

bool is_at(const std::string& path, const Socket& file) {
  struct stat local {
  }, at_path{};
  return fstat(file.descriptor(), &local) == 0 && stat(path.c_str(), &at_path) == 0 &&
         local.st_ino == at_path.st_ino && local.st_dev == at_path.st_dev;
}

}  // namespace

// Writes and locks the file under a temporary name, and then links it to its path: no rank sees an incomplete one.
MeetingFile::MeetingFile(const std::string& path, const StoreMember& member, const StorePlace& place)
    : path_(path) {
  const std::string temporary_name = fmt::format("{}.{}", path, random_token());
  file_ = Socket(open(temporary_name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
  const auto check_created = [&](bool succeeded) {
    check(succeeded, "file://{}: rank 0 cannot create the file: {}", path, std::strerror(errno));
  };
  check_created(bool(file_));
  const std::unique_ptr<const char, int (*)(const char*)> temporary(temporary_name.c_str(), unlink);
  std::string value = fmt::format("{} {}", member.world_size, place.secret);
  for (const Endpoint& endpoint : place.endpoints) value += " " + endpoint.text();
  const std::string bytes =
      StoreFrame{.kind = StoreFrame::Kind::hello, .key = member.job, .value = value}.bytes();
  check_created(pwrite(file_.descriptor(), bytes.data(), bytes.size(), 0) == std::ssize(bytes));
  check(try_lock(file_.descriptor(), kRankLocks),
        "file://{}: the file system does not support locks ({}); use tcp://HOST:PORT", path,
        std::strerror(errno));
  while (link(temporary_name.c_str(), path.c_str()) != 0) {
    check_created(errno == EEXIST);
    remove_stale();
  }
}

MeetingFile::~MeetingFile() {
  if (is_at(path_, file_)) unlink(path_.c_str());
}

/// Removes the file of a job that has ended. Throws UsageError if a running job uses it, or if it is of another format.
void MeetingFile::remove_stale() {
  const Socket stale(open(path_.c_str(), O_RDWR | O_CLOEXEC));
  check(stale || errno == ENOENT, "file://{}: rank 0 cannot open the file: {}", path_, std::strerror(errno));
  if (!stale) return;
  check(!is_locked(stale.descriptor(), kRankLocks) && try_lock(stale.descriptor(), kReplaceLock),
        "file://{}: another job uses the file; use a different file for each job", path_);
  if (!is_at(path_, stale)) return;
  struct stat status {};
  check(fstat(stale.descriptor(), &status) == 0 && S_ISREG(status.st_mode) &&
            (status.st_size == 0 || message_in(stale).has_value()),
        "file://{}: the file exists and is not a rendezvous file; it was not changed", path_);
  unlink(path_.c_str());
}

StorePlace MeetingFile::read(const std::string& path, const StoreMember& member) {
  const auto none = [](std::string reason) { return StorePlace{.missing = std::move(reason)}; };
  const Socket file(open(path.c_str(), O_RDWR | O_CLOEXEC));
  if (!file) return none(std::strerror(errno));
  // Another user of a shared directory must not pass for rank 0. Root may own files under another name, by NFS with
  // root_squash.
  struct stat status {};
  if (fstat(file.descriptor(), &status) != 0) return none(std::strerror(errno));
  if (geteuid() != 0 && status.st_uid != geteuid())
    return none(fmt::format("it belongs to user {}, and this rank to user {}", status.st_uid, geteuid()));
  if (!is_locked(file.descriptor(), kRankLocks))
    return none("the file is from an earlier job, which has ended");
  const std::optional<StoreFrame> message = message_in(file);
  if (!message) return none("it is not a rendezvous file");
  std::istringstream words(message->value);
  std::string world_size;
  StorePlace place{.is_own_secret = true};
  words >> world_size >> place.secret;
  if (message->key != member.job)
    fail<PeerError>(
        "rank {} is refused at file://{}: the file belongs to job '{}', not '{}'; use a different file for each job",
        member.rank, path, message->key, member.job);
  if (world_size != std::to_string(member.world_size))
    fail<PeerError>("rank {} is refused at file://{}: rank 0 has a world size of {}, rank {} of {}",
                    member.rank, path, world_size, member.rank, member.world_size);
  for (std::string endpoint; words >> endpoint;) place.endpoints.push_back(parse_endpoint(endpoint));
  return place;
}

}  // namespace convoy::dist
