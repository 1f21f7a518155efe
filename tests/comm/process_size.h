// What a process holds: memory, threads and file descriptors. For tests that nothing grows.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

// Functions of the sanitizers: null in a build without them.
extern "C" void __asan_init() __attribute__((weak));
extern "C" void __tsan_init() __attribute__((weak));

namespace convoy::testing {

/// The sizes of a process. All are 0 if it has exited.
struct ProcessSize {
  std::size_t descriptors = 0, threads = 0;
  std::size_t resident_kib = 0;  // memory in use, without swap

  /// Returns the sizes of the process `id`; of this one by default.
  static ProcessSize of(const std::string& id = "self") {
    const std::filesystem::path place = "/proc/" + id;
    std::error_code gone;
    const auto entries = [&](const char* name) {
      return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator(place / name, gone),
                                                    std::filesystem::directory_iterator()));
    };
    ProcessSize size{.descriptors = entries("fd"), .threads = entries("task")};
    std::ifstream status(place / "status");
    for (std::string word; status >> word;)
      if (word == "VmRSS:") status >> size.resident_kib;
    return size;
  }
};

/// Calls `use` many times and expects that this process does not grow: neither its descriptors and threads
/// nor, by more than 2 MiB, its memory. The first calls may fill caches.
template <class F>
void expect_no_growth(int calls, F&& use) {
  constexpr std::size_t kSlackKib = 2048;
  for (int i = 0; i < calls / 5; ++i) use();
  const ProcessSize before = ProcessSize::of();
  for (int i = calls / 5; i < calls; ++i) use();
  ProcessSize after = ProcessSize::of();
  // The system lists a joined thread for another moment, and a rank that is another thread may be leaving.
  for (int ms = 0; ms < 2000 && (after.threads > before.threads || after.descriptors > before.descriptors);
       ++ms) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    after = ProcessSize::of();
  }
  EXPECT_LE(after.descriptors, before.descriptors);
  EXPECT_LE(after.threads, before.threads);
  const bool is_sanitized =
      __asan_init != nullptr || __tsan_init != nullptr;  // these keep released memory for a while
  EXPECT_LE(is_sanitized ? 0 : after.resident_kib, before.resident_kib + kSlackKib) << "KiB";
}

}  // namespace convoy::testing
