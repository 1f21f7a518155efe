// Runs ranks as threads of the test process.
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "convoy/comm/bootstrap/thread_rendezvous.h"
#include "convoy/comm/transport/thread/thread_communicator.h"

namespace convoy::testing {

/// Runs `body` on every rank, each in its own thread. An exception fails the test.
inline void run_rank_threads(int ranks, const std::function<void(dist::ThreadRendezvous&)>& body) {
  std::vector<std::jthread> threads;
  for (auto& own : dist::rendezvous_in_threads(ranks, 60))
    threads.emplace_back([&body, rendezvous = std::move(own)] {
      const std::string rank = "rank " + std::to_string(rendezvous->info().rank);
      try {
        const ::testing::ScopedTrace trace(__FILE__, __LINE__, rank);
        body(*rendezvous);
      } catch (const std::exception& error) {
        ADD_FAILURE() << rank << ": " << error.what();
      }
    });
}

/// Does the same with a communicator for each rank.
inline void on_ranks(int ranks, const std::function<void(dist::Communicator&)>& body,
                     const dist::CommOptions& options = {.timeout_seconds = 20}) {
  run_rank_threads(ranks, [&](dist::Rendezvous& rendezvous) {
    body(*dist::make_thread_communicator(rendezvous, options));
  });
}

}  // namespace convoy::testing
