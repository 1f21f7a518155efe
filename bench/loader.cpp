// convoy-bench-loader: how fast a training's images are read, and its batches made.
#include <nlohmann/json.hpp>

#include "apps/command_line.h"
#include "apps/doctor_host.h"
#include "apps/progress.h"
#include "apps/run_main.h"
#include "apps/version.h"
#include "bench/loader_measure.h"
#include "bench/step_report.h"
#include "comm/environment.h"
#include "kernels/runtime/check.h"

namespace convoy::bench {
namespace {

using Json = nlohmann::ordered_json;

CommandLine loader_command_line(LoaderBenchOptions& options) {
  CommandLine line("convoy-bench-loader",
                   "Measures the loader: images a second, and a second of one core, from the files to memory "
                   "and from there to batches.");
  line.heading("Data");
  add_data_flags(line, options.data);
  line.add("augment", &options.augment, "As convoy-train has it", {.value = "LIST"});
  line.add("batch-size", &options.batch_size, "Images of a batch",
           {.value = "N", .least = 1, .most = 1 << 20});
  line.add("seed", &options.seed, "Of order and augmentation", {.value = "N", .least = 0});
  line.heading("Measurement");
  line.add("epochs", &options.epochs, "Times that batches of all training images are made",
           {.value = "N", .least = 1, .most = 1e4});
  line.add("json", &options.json, "Write the figures to this file, too",
           {.value = "FILE", .default_is = "none"});
  return line;
}

std::string text_of_rates(double per_second, double per_core_second) {
  return fmt::format("{:.0f} images/s; {:.0f} a second of one core", per_second, per_core_second);
}

void print_report(const Json& report) {
  const auto rates = [&](const char* part) {
    const Json& time = report[part];
    return text_of_rates(time["images_per_second"].get<double>(),
                         time["images_per_core_second"].get<double>());
  };
  const Json& machine = report["machine"];
  print_table(
      {{"data", report["data"].get<std::string>()},
       {"transform", report["transform"].get<std::string>()},
       {"batches", fmt::format("of {} images, by {} workers", report["batch_size"].get<std::int64_t>(),
                               report["workers"].get<std::int64_t>())},
       {"machine", fmt::format("{}, {} cores, {}", machine["processor"].get<std::string>(),
                               machine["cores"].get<std::int64_t>(), machine["system"].get<std::string>())},
       {"reading", rates("reading")},
       {"first epoch", rates("first_epoch") + ", reading included"},
       {"each epoch", text_of_rates(report["images_per_second"]["median"].get<double>(),
                                    report["images_per_core_second"]["median"].get<double>()) +
                          ", from memory"}});
}

int run(int argc, char** argv) {
  LoaderBenchOptions options;
  options.data.dataset = "folder";
  CommandLine line = loader_command_line(options);
  if (!line.parse(argc, argv)) return 0;
  check_writable(options.json);
  const doctor::RankFacts host = doctor::examine_host(environment_variables());
  Json report = {
      {"version", kVersion},
      {"machine",
       {{"processor", host.cpu.processor}, {"cores", host.cpu.cores.size()}, {"system", host.system}}},
      {"batch_size", options.batch_size},
      {"workers", options.data.workers}};
  report.update(to_json(measure_loader(options)));
  print_report(report);
  write_json(options.json, report);
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-loader", [&] { return convoy::bench::run(argc, argv); });
}
