// The interface of a key-value store, through which processes find each other, and the store in a file.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "convoy/comm/core/deadline.h"

namespace convoy::dist {

/// The key of the reason with which the first rank fails.
constexpr const char* kFailureKey = "failure";
/// The number of handshakes with a TCP store that have failed. Only its server sets the key.
constexpr const char* kRefusedKey = "refused";

/// The identity with which a rank joins a store.
struct StoreMember {
  int rank = 0;
  int world_size = 1;
  /// The name of the job, equal on all ranks; empty if it has none.
  std::string job;
};

/// Returns whether the rank may set the key. A key that ends with "/" and a rank belongs to that rank. All
/// ranks may set kFailureKey.
inline bool may_set(int rank, const std::string& key) {
  return key == kFailureKey || key.ends_with("/" + std::to_string(rank));
}

/// A key-value store of small strings that all ranks of a job share. Thread-safe.
class Store {
 public:
  virtual ~Store() = default;
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  /// Returns the location for messages, such as "tcp://10.0.0.1:29500".
  virtual std::string name() const = 0;
  /// The default time for the process that serves the store to answer, in seconds.
  static constexpr double kAnswerSeconds = 5;

  /// Sets `key`, which ends with "/" and this rank: no rank can write the keys of another one. The first
  /// value of a key is kept; later calls have no effect. Throws UsageError if the key belongs to another
  /// rank, or if the key or value is too long. Throws PeerError if the store is lost, or does not answer
  /// within `answer_seconds`.
  virtual void set(const std::string& key, const std::string& value,
                   double answer_seconds = kAnswerSeconds) = 0;
  /// Blocks until `key` has been set, and returns its value; nullopt after the deadline. Throws PeerError if
  /// the store is lost, or does not answer within `answer_seconds` after the deadline.
  virtual std::optional<std::string> get(const std::string& key, const Deadline& deadline,
                                         double answer_seconds = kAnswerSeconds) = 0;
  /// Sets the key "what/rank" of this rank to `local`, blocks until all ranks have done so, and returns their values;
  /// nullopt after the deadline, or earlier if a rank has set kFailureKey. Throws as set() and get() do.
  virtual std::optional<std::vector<std::string>> gather(const std::string& what, const std::string& local,
                                                         const Deadline& deadline,
                                                         double answer_seconds = kAnswerSeconds) = 0;
  /// Returns the ranks that have not set their key "what/rank", in ascending order. Throws as get() does.
  virtual std::vector<int> missing(const std::string& what) = 0;
};

/// Returns a store in a file, on one host or on a shared file system with locks. Every rank holds a lock on
/// one byte of the file until it exits. So the file of a killed job is recognized as stale: rank 0 replaces
/// it, and the other ranks wait for that. The file of a running job, and any file of another format, is
/// refused and left unchanged.
///
/// Creates the file on rank 0; the other ranks wait for it. Throws UsageError on rank 0 if the file cannot
/// be created. Throws PeerError if this rank is refused (another job, or a rank that has already joined),
/// or if rank 0 does not create the file before the deadline.
/// Destroying it on rank 0 removes the file after the other ranks have closed it, or after one second.
std::unique_ptr<Store> open_file_store(const std::string& path, const StoreMember& member,
                                       const Deadline& deadline);

}  // namespace convoy::dist
