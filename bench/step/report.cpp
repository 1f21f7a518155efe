#include <fmt/format.h>
#include <algorithm>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "bench/programs/results.h"
#include "bench/step/step.h"
#include "convoy/apps/common/machine.h"
#include "convoy/apps/common/text.h"
#include "convoy/version.h"
#include "tests/cuda_emulator/counted/gpu_model.h"

namespace convoy::bench {
namespace {

using Json = nlohmann::ordered_json;

std::string format_spread(const Json& spread, const char* unit) {
  return fmt::format("{:.3f} {} (minimum {:.3f}, maximum {:.3f})", spread["median"].get<double>(), unit,
                     spread["lowest"].get<double>(), spread["highest"].get<double>());
}

}  // namespace

Json about_step(const StepOptions& options, const std::string& hardware, const std::string& ranks,
                int world_size) {
  const TrainOptions& training = options.training;
  const Machine host = this_machine();
  Json libraries = host.libraries;
  if (!hardware.empty()) libraries.push_back(hardware);
  return {{"version", kVersion},
          {"model", training.model},
          {"image_size", training.data.image_size},
          {"batch_size", *training.batch_size},
          {"micro_batch_size", training.micro_batch_size},
          {"optimizer", to_string(*training.optimizer)},
          {"precision", training.precision},
          {"device", training.compute.device},
          {"threads", training.compute.threads},
          {"ranks", ranks},
          {"world_size", world_size},
          {"libraries", libraries},
          {"machine", {{"processor", host.processor}, {"cores", host.cores.size()}, {"system", host.system}}},
          {"steps", *options.steps},
          {"rounds", options.rounds},
          {"warmup", options.warmup}};
}

Json to_json(const StepFigures& figures) {
  return {{"images_per_second", spread_of(figures.images_per_second)},
          {"step_ms", spread_of(figures.step_ms)},
          {"step_ms_by_round", figures.step_ms},
          {"peak_bytes", figures.peak_bytes},
          {"allocations", figures.allocations}};
}

void print_about(const Json& about) {
  std::string batch = fmt::format("{}", about["batch_size"].get<std::int64_t>());
  if (const auto part = about["micro_batch_size"].get<std::int64_t>(); part > 0)
    batch += fmt::format(" in micro-batches of {}", part);
  const Json& machine = about["machine"];
  print_table(
      {{"model", fmt::format("{}, {} pixels, {}, {}", about["model"].get<std::string>(),
                             about["image_size"].get<std::int64_t>(), about["optimizer"].get<std::string>(),
                             about["precision"].get<std::string>())},
       {"batch", batch},
       {"device", fmt::format("{}, {} threads", about["device"].get<std::string>(),
                              about["threads"].get<std::int64_t>())},
       {"ranks", about["ranks"].get<std::string>()},
       {"versions", fmt::format("Convoy {}, {}", about["version"].get<std::string>(),
                                fmt::join(about["libraries"].get<std::vector<std::string>>(), ", "))},
       {"machine", fmt::format("{}, {} cores, {}", machine["processor"].get<std::string>(),
                               machine["cores"].get<std::int64_t>(), machine["system"].get<std::string>())},
       {"rounds", fmt::format("{} of {} steps, after {} warm-up rounds", about["rounds"].get<std::int64_t>(),
                              about["steps"].get<std::int64_t>(), about["warmup"].get<std::int64_t>())}});
}

void print_figures(const Json& figures) {
  print_table({{"rate", format_spread(figures["images_per_second"], "images/s")},
               {"step", format_spread(figures["step_ms"], "ms")},
               {"memory", fmt::format("peak {}; {} system allocations after the warm-up",
                                      format_bytes(figures["peak_bytes"].get<std::size_t>()),
                                      figures["allocations"].get<std::uint64_t>())}});
}

namespace {

/// All launches of one name.
struct Group {
  CountedLaunch sum;
  int launches = 0;
  double seconds = 0;
};

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
  std::ranges::stable_sort(sorted, std::greater(), [](const auto& each) { return each.second.seconds; });
  std::string text = fmt::format(
      "| kernel or operation | launches | moved MB | sector efficiency | GFLOP | us on an {}, predicted | % |\n"
      "|---|---|---|---|---|---|---|\n",
      gpu.name);
  for (const auto& [name, group] : sorted) text += line(name, group, all.seconds);
  text += line("step", all, all.seconds);
  return text + fmt::format("\npredicted: {:.3f} ms per step, {:.0f} images/s\n", 1e3 * all.seconds,
                            static_cast<double>(images) / all.seconds);
}

Json step_counts_json(const std::vector<CountedLaunch>& launches) {
  Json nodes = Json::array();
  double seconds = 0;
  for (const CountedLaunch& launch : launches) {
    const double predicted = predicted_seconds(h100_model(), launch);
    seconds += predicted;
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
                     {"predicted_us", 1e6 * predicted}});
  }
  return {{"gpu", h100_model().name}, {"predicted_step_ms", 1e3 * seconds}, {"launches", std::move(nodes)}};
}

}  // namespace convoy::bench
