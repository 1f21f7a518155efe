// convoy-bench-loader: measures reading image files and making batches.
#include <nlohmann/json.hpp>

#include "bench/common/results.h"
#include "bench/loader/measure.h"
#include "convoy/apps/common/command_line.h"
#include "convoy/apps/common/machine.h"
#include "convoy/apps/common/run_main.h"
#include "convoy/apps/common/text.h"
#include "convoy/kernels/base/check.h"
#include "convoy/version.h"

namespace convoy::bench {
namespace {

using Json = nlohmann::ordered_json;

CommandLine loader_command_line(LoaderBenchOptions& options) {
  CommandLine line(
      "convoy-bench-loader",
      "Measures the data loader: images per second, and per second of one core, for reading files "
      "into memory and for making batches from memory.");
  add_data_flags(line, options.data);
  line.add("augment", &options.augment, "Augmentation, as in convoy-train", {.value = "LIST"});
  add_augmentation_flags(line, options.augmentation);
  line.add("batch-size", &options.batch_size, "Batch size (images)",
           {.value = "N", .minimum = 1, .maximum = 1 << 20});
  line.add("seed", &options.seed, "Random seed of shuffling and augmentation",
           {.value = "N", .minimum = 0, .advanced = true});
  line.group("Measurement");
  line.add("epochs", &options.epochs, "Measured epochs", {.value = "N", .minimum = 1, .maximum = 1e4});
  line.add("json", &options.json, "Result file (JSON)", {.value = "FILE"});
  return line;
}

std::string format_rates(double per_second, double per_core_second) {
  return fmt::format("{:.0f} images/s; {:.0f} images per core-second", per_second, per_core_second);
}

void print_report(const Json& report) {
  const auto rates = [&](const char* part) {
    const Json& time = report[part];
    return format_rates(time["images_per_second"].get<double>(),
                        time["images_per_core_second"].get<double>());
  };
  const Json& machine = report["machine"];
  print_table(
      {{"data", report["data"].get<std::string>()},
       {"transform", report["transform"].get<std::string>()},
       {"batches", fmt::format("{} images each, {} workers", report["batch_size"].get<std::int64_t>(),
                               report["workers"].get<std::int64_t>())},
       {"machine", fmt::format("{}, {} cores, {}", machine["processor"].get<std::string>(),
                               machine["cores"].get<std::int64_t>(), machine["system"].get<std::string>())},
       {"reading", rates("reading")},
       {"first epoch", rates("first_epoch") + ", including reading"},
       {"each epoch", format_rates(report["images_per_second"]["median"].get<double>(),
                                   report["images_per_core_second"]["median"].get<double>()) +
                          ", from memory"}});
}

int run(int argc, char** argv) {
  LoaderBenchOptions options;
  options.data.dataset = "folder";
  CommandLine line = loader_command_line(options);
  if (!line.parse(argc, argv)) return 0;
  check_writable(options.json);
  const auto warning = busy_machine_warning();
  const Machine host = this_machine();
  Json report = {
      {"version", kVersion},
      {"machine", {{"processor", host.processor}, {"cores", host.cores.size()}, {"system", host.system}}},
      {"batch_size", options.batch_size},
      {"workers", options.data.workers}};
  report.update(to_json(measure_loader(options)));
  if (warning) fmt::print(stderr, "convoy-bench-loader: warning: {}\n", *warning);
  print_report(report);
  write_json(options.json, report);
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-loader", [&] { return convoy::bench::run(argc, argv); });
}
