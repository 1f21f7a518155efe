// A key-value store in a file that all ranks can access, on one host or on a shared file system with locks.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/cluster/store/store.h"
#include "convoy/comm/cluster/store/store_member.h"

namespace convoy::dist {

/// A Store in a file. Every rank holds a lock on one byte of the file until it exits. So the file of a killed
/// job is recognized as stale: rank 0 replaces it, and the other ranks wait for that. The file of a running
/// job, and any file of another format, is refused and left unchanged.
class FileStore final : public Store {
 public:
  /// Creates the file on rank 0; the other ranks wait for it. Throws UsageError on rank 0 if the file cannot
  /// be created. Throws PeerError if this rank is refused (another job, or a rank that has already joined),
  /// or if rank 0 does not create the file before the deadline.
  FileStore(const std::string& path, const StoreMember& member, const Deadline& deadline);
  /// On rank 0, removes the file after the other ranks have closed it, or after one second.
  ~FileStore() override;

  std::string name() const override { return "file://" + path_; }
  void set(const std::string& key, const std::string& value, double answer_seconds = kAnswerSeconds) override;
  std::optional<std::string> get(const std::string& key, const Deadline& deadline,
                                 double answer_seconds = kAnswerSeconds) override;

 private:
  void create(const Deadline& deadline);
  /// Removes the file of a job that has ended. Throws UsageError if a running job uses the file, or if it has
  /// another format.
  void remove_stale();
  void join(const Deadline& deadline);
  /// Returns an empty string if this rank has joined, otherwise the reason to retry. Throws PeerError if the
  /// rank is refused.
  std::string try_to_join();
  void read_new();
  bool rank_0_is_alive() const;
  bool is_at_path() const;

  const std::string path_;
  const StoreMember member_;
  std::mutex mutex_;
  Socket file_;
  std::int64_t read_ = 0;  // size in bytes of the complete records read so far
  std::map<std::string, std::string> values_;
};

}  // namespace convoy::dist
