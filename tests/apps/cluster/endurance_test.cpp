// A long training on eight ranks, whose processes may not grow. Labelled soak: half an hour, or as many minutes as
// CONVOY_SOAK_MINUTES says.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "tests/apps/launched_training.h"
#include "tests/comm/process_size.h"

namespace convoy::testing {
namespace {

TEST_F(ConvoyLaunch, EightRanksDoNotGrow) {
  constexpr int kRanks = 8;
  const char* const given = std::getenv("CONVOY_SOAK_MINUTES");
  const auto duration =
      std::chrono::duration<double, std::ratio<60>>(given != nullptr ? std::atof(given) : 30.0);
  const auto begin = std::chrono::steady_clock::now();
  Process job(
      training("run", {"--ranks", std::to_string(kRanks)},
               {"--epochs", "1000000", "--eval-every", "50", "--save-every", "500", "--keep-last", "2"}));
  wait_for_step(workshop, "run", 50);
  std::map<pid_t, ProcessSize> early, late;
  const auto measure = [&] {
    std::map<pid_t, ProcessSize> sizes;
    for (int rank = 0; rank < kRanks; ++rank)
      for (const pid_t process : find_processes("RANK=" + std::to_string(rank), workshop.path("run")))
        sizes[process] = ProcessSize::of(std::to_string(process));
    return sizes;
  };
  // The largest of ten samples: checkpoints and evaluations come and go.
  const auto largest = [&] {
    std::map<pid_t, ProcessSize> largest_of;
    for (int i = 0; i < 10; ++i) {
      for (const auto& [process, size] : measure()) {
        ProcessSize& top = largest_of[process];
        top.descriptors = std::max(top.descriptors, size.descriptors);
        top.threads = std::max(top.threads, size.threads);
        top.resident_kib = std::max(top.resident_kib, size.resident_kib);
      }
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
    return largest_of;
  };
  std::this_thread::sleep_until(begin + duration / 6);  // until caches are full
  early = largest();
  std::this_thread::sleep_until(begin + duration);
  late = largest();
  job.send(SIGTERM);
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 143) << result.err;
  ASSERT_EQ(early.size(), static_cast<std::size_t>(kRanks));
  ASSERT_EQ(late.size(), early.size());
  for (const auto& [process, before] : early) {
    ASSERT_TRUE(late.contains(process)) << "process " << process << " was replaced";
    const ProcessSize& after = late[process];
    std::printf("process %d: %zu -> %zu descriptors, %zu -> %zu threads, %.1f -> %.1f MiB\n", process,
                before.descriptors, after.descriptors, before.threads, after.threads,
                static_cast<double>(before.resident_kib) / 1024,
                static_cast<double>(after.resident_kib) / 1024);
    EXPECT_LE(after.descriptors, before.descriptors + 1);
    EXPECT_LE(after.threads, before.threads);
    EXPECT_LE(static_cast<double>(after.resident_kib),
              1.02 * static_cast<double>(before.resident_kib) + 1024);
  }
  std::printf("%zu steps\n", workshop.events("run", "step").size());
}

}  // namespace
}  // namespace convoy::testing
