// convoy-bench-overhead: measures the time of operations on tiny tensors.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "bench/overhead/overhead.h"
#include "bench/common/results.h"
#include "convoy/apps/common/command_line.h"
#include "convoy/apps/common/run_main.h"

namespace convoy::bench {
namespace {

std::string cell(const Spread& spread) {
  return fmt::format("{:7.0f} ({:.0f} to {:.0f})", spread.median, spread.lowest, spread.highest);
}

int run(int argc, char** argv) {
  std::int64_t rounds = 5;
  double seconds = 0.02;
  std::string json;
  CommandLine line(
      "convoy-bench-overhead",
      "Times operations on tensors of a few elements on one CPU thread: checks, allocation and recording of "
      "the graph, without much arithmetic.");
  line.group("Measurement");
  line.add("rounds", &rounds, "Measured rounds; results are the median, minimum and maximum",
           {.value = "N", .minimum = 1, .maximum = 1e4});
  line.add("seconds", &seconds, "Minimum duration of a round (seconds)",
           {.value = "S", .minimum = 1e-4, .maximum = 60});
  line.add("json", &json, "Result file (JSON)", {.value = "FILE"});
  if (!line.parse(argc, argv)) return 0;
  check_writable(json);
  warn_if_busy("convoy-bench-overhead");
  const std::vector<Overhead> overheads = measure_overheads(static_cast<int>(rounds), seconds);
  fmt::print("{:<14}  {:<24}  {:<24}  {}\n", "ns per call", "forward", "forward, recorded",
             "forward and backward");
  for (const Overhead& each : overheads)
    fmt::print("{:<14}  {:<24}  {:<24}  {}\n", each.name, cell(each.inference), cell(each.recorded),
               cell(each.training));
  write_json(json, to_json(overheads));
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-overhead", [&] { return convoy::bench::run(argc, argv); });
}
