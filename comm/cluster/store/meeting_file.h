// The file of a rendezvous at file://PATH, in which rank 0 writes where it serves the store of its job.
#pragma once

#include <string>

#include "convoy/comm/cluster/net/socket.h"
#include "convoy/comm/cluster/store/tcp_store.h"

namespace convoy::dist {

/// A file on one host, or on a shared file system with locks, that only its user can read. Rank 0 holds a lock on it
/// until it exits. So the file of a killed job is recognized as stale: rank 0 replaces it, and the other ranks wait for
/// that. The file of a running job, and any file of another format, is refused and left unchanged.
class MeetingFile {
 public:
  /// Creates the file of rank 0. Throws UsageError if it cannot be created.
  MeetingFile(const std::string& path, const StoreMember& member, const StorePlace& place);
  /// Removes the file.
  ~MeetingFile();
  MeetingFile(const MeetingFile&) = delete;
  MeetingFile& operator=(const MeetingFile&) = delete;

  /// Returns what rank 0 has written; without an endpoint, and with the reason, if it has not yet. Throws PeerError if
  /// the file belongs to another job.
  static StorePlace read(const std::string& path, const StoreMember& member);

 private:
  void remove_stale();

  const std::string path_;
  Socket file_;
};

}  // namespace convoy::dist
