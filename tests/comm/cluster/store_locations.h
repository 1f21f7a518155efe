// Locations of TCP stores for tests, with a function to join them, and their time limits.
#pragma once

#include <chrono>
#include <functional>
#include <memory>

#include "convoy/comm/cluster/store/tcp_store.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {

inline constexpr double kPatience = 40;  // seconds; generous timeout for events that happen soon

inline constexpr double kAtOnce = 20;  // seconds; far more than necessary, far less than kPatience
inline constexpr int kTries = 4;       // attempts at timing checks, which a busy machine can disturb

inline double seconds_of(const std::function<void()>& action) {
  const auto begin = std::chrono::steady_clock::now();
  action();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

/// A location at which ranks open a store.
struct TcpLocation {
  dist::Endpoint endpoint{"127.0.0.1", free_port()};
  std::unique_ptr<dist::TcpStore> open_as(const dist::StoreMember& member, double seconds) const {
    return std::make_unique<dist::TcpStore>(endpoint, member, dist::Deadline(seconds));
  }
  std::unique_ptr<dist::TcpStore> open(int rank, int world_size = 2) const {
    return open_as({rank, world_size, "job"}, kPatience);
  }
};

}  // namespace convoy::testing
