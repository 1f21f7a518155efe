// Counted steps of convoy-bench-step, and the counts that bench/results/counted has.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::bench {

inline testing::ProcessResult count_step(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {
      std::filesystem::read_symlink("/proc/self/exe").parent_path() / "convoy-bench-step", "--count",
      "--device", "cuda"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return testing::Process(arguments).wait(std::chrono::seconds(800));  // minutes on a slow machine
}

/// Returns a line for each launch of a report: its kernel, grid and bytes. Requests and sectors are left out, since another
/// release of g++ may merge other loads.
inline std::vector<std::string> launches_in(const std::string& path) {
  std::ifstream in(path);
  std::vector<std::string> lines;
  const nlohmann::json report = nlohmann::json::parse(in);  // outlives the loop
  for (const auto& launch : report["counts"]["launches"])
    lines.push_back(fmt::format("{} {} x {}: {} B read, {} B written", launch["name"].get<std::string>(),
                                launch["blocks"].get<int>(), launch["threads"].get<int>(),
                                launch["bytes_read"].get<std::int64_t>(),
                                launch["bytes_written"].get<std::int64_t>()));
  return lines;
}

/// Expects the committed counts of a step of ResNet-18, with which a GPU's counters are compared.
inline void expect_committed_counts(int batch_size) {
  const testing::TempDirectory directory;
  const std::string file = directory.path() / "counts.json";
  const testing::ProcessResult result =
      count_step({"--model", "resnet18", "--precision", "bf16", "--batch-size", std::to_string(batch_size),
                  "--json", file});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(launches_in(file), launches_in(testing::source_path(
                                   fmt::format("bench/results/counted/resnet18-bf16-{}.json", batch_size))))
      << "bench/results/counted/README.md has the command that writes the file again";
}

}  // namespace convoy::bench
