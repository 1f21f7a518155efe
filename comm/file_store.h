// A store in a file that all ranks see: on one host, or on a file system that hosts share and that knows
// locks.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <string>

#include "comm/socket.h"
#include "comm/store.h"
#include "comm/store_member.h"

namespace convoy {

/// Every rank holds a lock on a byte of the file as long as it lives, however it ends: so a file that a
/// killed job left is no danger (rank 0 replaces it, the others wait until it has), while that of a living
/// job is refused. A file of anybody else's is refused, too, and not touched.
class FileStore final : public Store {
 public:
  /// Rank 0 makes the file, the others wait for it. UsageError on rank 0 where it cannot; PeerError where a
  /// rank is refused (another job, a rank that has come already), or rank 0 has not come by the deadline.
  FileStore(const std::string& path, const StoreMember& member, const Deadline& deadline);
  /// Rank 0 removes the file, once the others have left it or a moment has passed.
  ~FileStore() override;

  std::string name() const override { return "file://" + path_; }
  void set(const std::string& key, const std::string& value) override;
  std::optional<std::string> get(const std::string& key, const Deadline& deadline) override;

 private:
  void create(const Deadline& deadline);
  /// Removes what a job that has ended left at the path.
  void remove_stale();
  void join(const Deadline& deadline);
  /// Empty where this rank is in; else what to wait for.
  std::string try_to_join();
  void read_new();
  bool rank_0_lives() const;
  bool is_at_path() const;

  const std::string path_;
  const StoreMember member_;
  std::mutex mutex_;
  Socket file_;
  std::int64_t read_ = 0;  // bytes of whole records
  std::map<std::string, std::string> values_;
};

}  // namespace convoy
