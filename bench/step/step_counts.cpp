#include "bench/step/step_counts.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/counted/gpu_model.h"

namespace convoy::bench {
namespace {

/// All launches of one name.
struct Group {
  CountedLaunch sum;
  int launches = 0;
  double seconds = 0;
};

double predicted_step_seconds(const std::vector<CountedLaunch>& launches) {
  double seconds = 0;
  for (const CountedLaunch& launch : launches) seconds += predicted_seconds(h100_model(), launch);
  return seconds;
}

double mega(std::int64_t count) { return static_cast<double>(count) / 1e6; }

std::string line(const std::string& name, const Group& group, double step_seconds) {
  const std::string efficiency = group.sum.loads.requests + group.sum.stores.requests > 0
                                     ? fmt::format("{:.1f} %", 100 * group.sum.sector_efficiency())
                                     : "";
  const std::string flops = group.sum.flops > 0 ? fmt::format("{:.1f}", mega(group.sum.flops) / 1e3) : "";
  return fmt::format("| {} | {} | {:.2f} | {} | {} | {:.1f} | {:.1f} |\n", name, group.launches,
                     mega(group.sum.bytes()), efficiency, flops, 1e6 * group.seconds,
                     100 * group.seconds / step_seconds);
}

}  // namespace

std::string step_counts_table(const std::vector<CountedLaunch>& launches, std::int64_t images) {
  const GpuModel gpu = h100_model();
  std::map<std::string, Group> groups;
  Group all;
  for (const CountedLaunch& launch : launches)
    for (Group* const group : {&groups[launch.name], &all}) {
      group->sum += launch;
      ++group->launches;
      group->seconds += predicted_seconds(gpu, launch);
    }
  std::vector<std::pair<std::string, Group>> sorted(groups.begin(), groups.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.seconds > b.second.seconds; });
  std::string text = fmt::format(
      "| kernel or operation | launches | moved MB | sector efficiency | GFLOP | us on an {}, predicted | % |\n"
      "|---|---|---|---|---|---|---|\n",
      gpu.name);
  for (const auto& [name, group] : sorted) text += line(name, group, all.seconds);
  text += line("step", all, all.seconds);
  return text + fmt::format("\npredicted: {:.3f} ms per step, {:.0f} images/s\n", 1e3 * all.seconds,
                            static_cast<double>(images) / all.seconds);
}

nlohmann::ordered_json step_counts_json(const std::vector<CountedLaunch>& launches) {
  nlohmann::ordered_json nodes = nlohmann::ordered_json::array();
  for (const CountedLaunch& launch : launches)
    nodes.push_back({{"name", launch.name},
                     {"blocks", launch.blocks},
                     {"threads", launch.block_threads},
                     {"bytes_read", launch.bytes_read},
                     {"bytes_written", launch.bytes_written},
                     {"requests_loaded", launch.loads.requests},
                     {"requests_stored", launch.stores.requests},
                     {"sectors_loaded", launch.loads.sectors},
                     {"sectors_stored", launch.stores.sectors},
                     {"shared_wavefronts", launch.shared_wavefronts},
                     {"flops", launch.flops},
                     {"predicted_us", 1e6 * predicted_seconds(h100_model(), launch)}});
  return {{"gpu", h100_model().name},
          {"predicted_step_ms", 1e3 * predicted_step_seconds(launches)},
          {"launches", std::move(nodes)}};
}

}  // namespace convoy::bench
