// The interface of a key-value store, through which processes find each other.
#pragma once

#include <optional>
#include <string>

#include "convoy/comm/core/deadline.h"

namespace convoy::dist {

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
};

}  // namespace convoy::dist
