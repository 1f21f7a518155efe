// Where processes that know nothing of each other yet leave small texts for each other.
#pragma once

#include <optional>
#include <string>

#include "comm/deadline.h"

namespace convoy {

/// Keys and values that all ranks of a job see. Calls may come from any thread.
class Store {
 public:
  virtual ~Store() = default;
  Store() = default;
  Store(const Store&) = delete;
  Store& operator=(const Store&) = delete;

  virtual std::string name() const = 0;  // "tcp://10.0.0.1:29500", for messages
  /// A key is set once.
  virtual void set(const std::string& key, const std::string& value) = 0;
  /// Waits until somebody has set the key; nothing where the deadline comes first. PeerError where the store
  /// itself is gone.
  virtual std::optional<std::string> get(const std::string& key, const Deadline& deadline) = 0;
};

}  // namespace convoy
