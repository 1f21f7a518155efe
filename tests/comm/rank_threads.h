// Runs ranks as threads of the test process.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "convoy/comm/transport/thread/thread_communicator.h"

namespace convoy::testing {

/// Runs `body` on every rank, each in its own thread. An exception fails the test.
inline void on_ranks(int ranks, const std::function<void(dist::Communicator&)>& body,
                     const dist::CommOptions& options = {.timeout_seconds = 20}) {
  std::vector<std::thread> threads;
  for (auto& comm : dist::make_thread_communicators(ranks, options))
    threads.emplace_back([&body, own = std::move(comm)] {
      try {
        body(*own);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << own->rank() << " of " << own->size() << ": " << error.what();
      }
    });
  for (std::thread& thread : threads) thread.join();
}

}  // namespace convoy::testing
