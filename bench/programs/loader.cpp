// convoy-bench-loader: measures reading image files and making batches, without a training.
#include <sys/resource.h>

#include <chrono>
#include <nlohmann/json.hpp>

#include "bench/programs/results.h"
#include "convoy/apps/common/machine.h"
#include "convoy/apps/common/text.h"
#include "convoy/apps/data/data_source.h"
#include "convoy/apps/flags/command_line.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/train/options/options.h"
#include "convoy/datasets/loader/loader.h"
#include "convoy/kernels/base/check.h"
#include "convoy/version.h"

namespace convoy::bench {
namespace {

using Json = nlohmann::ordered_json;

/// The flags of convoy-bench-loader.
struct LoaderBenchOptions {
  DataOptions data;
  std::int64_t batch_size = 128;
  std::string augment = "crop=4,flip";
  AugmentationOptions augmentation;
  std::int64_t epochs = 3;
  std::int64_t seed = 1;
  std::string json;  // file
};

double core_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

/// Returns a number of images, the wall time and the user and system time of the process over all cores that they took,
/// and the rates.
Json time_of(std::int64_t images, double seconds, double core_seconds) {
  const auto count = static_cast<double>(images);
  return {{"images", images},
          {"seconds", seconds},
          {"core_seconds", core_seconds},
          {"images_per_second", count / seconds},
          {"images_per_core_second", count / core_seconds}};
}

/// Returns a function that returns time_of() a number of images since this call.
auto start_watch() {
  return [begin = std::chrono::steady_clock::now(), core_begin = core_seconds()](std::int64_t images) {
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    return time_of(images, seconds.count(), core_seconds() - core_begin);
  };
}

Json run_epoch(data::DataLoader& loader, std::int64_t images) {
  const auto watch = start_watch();
  std::int64_t found = 0;
  for (std::vector<data::Batch> step = loader.next_step(); !step.empty(); step = loader.next_step())
    for (const data::Batch& batch : step) found += batch.images.size(0);
  check(found == images, "an epoch: found {} images, expected {}", found, images);
  return watch(images);
}

/// Requests every batch of every epoch and discards it. Returns the time of opening, decoding and resizing all training and
/// test files, which a training does once; that of making batches of the training images from memory, per epoch; and the
/// cost of a first epoch: the share of the former that belongs to the training images, plus the first of the latter. Throws
/// DataError if the data set cannot be read.
Json measure_loader(const LoaderBenchOptions& options) {
  const DataLocation location = locate_data(options.data);
  const auto seed = static_cast<std::uint64_t>(options.seed);
  const auto watch = start_watch();
  const data::DataSet data = read_data(location, options.data, seed);
  data::TransformSpec transform =
      data::make_transform(options.augment, data::channel_statistics(data.train), {.natural_images = true});
  apply_augmentation(options.augmentation, transform);
  const Json reading = watch(data.train.size() + data.test.size());
  data::DataLoader loader(data.train, {.global_batch = options.batch_size,
                                       .seed = seed,
                                       .transform = transform,
                                       .workers = static_cast<int>(options.data.workers),
                                       .max_epochs = options.epochs});
  Json epochs = Json::array();
  for (std::int64_t epoch = 0; epoch < options.epochs; ++epoch)
    epochs.push_back(run_epoch(loader, data.train.size()));
  const auto first = [&](const char* seconds) {
    const double fraction = static_cast<double>(data.train.size()) / reading["images"].get<double>();
    return fraction * reading[seconds].get<double>() + epochs[0][seconds].get<double>();
  };
  const auto rates = [&](const char* name) {
    std::vector<double> values;
    for (const Json& epoch : epochs) values.push_back(epoch[name].get<double>());
    return spread_of(values);
  };
  return {{"data", data.note},
          {"image", data.image_shape().sizes()},
          {"transform", transform.describe()},
          {"reading", reading},
          {"first_epoch", time_of(data.train.size(), first("seconds"), first("core_seconds"))},
          {"images_per_second", rates("images_per_second")},
          {"images_per_core_second", rates("images_per_core_second")},
          {"epochs", epochs}};
}

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

void print_report(const Json& report) {
  const auto rates = [](const Json& per_second, const Json& per_core_second) {
    return fmt::format("{:.0f} images/s; {:.0f} images per core-second", per_second.get<double>(),
                       per_core_second.get<double>());
  };
  const auto rates_of = [&](const char* part) {
    return rates(report[part]["images_per_second"], report[part]["images_per_core_second"]);
  };
  const Json& machine = report["machine"];
  print_table(
      {{"data", report["data"].get<std::string>()},
       {"transform", report["transform"].get<std::string>()},
       {"batches", fmt::format("{} images each, {} workers", report["batch_size"].get<std::int64_t>(),
                               report["workers"].get<std::int64_t>())},
       {"machine", fmt::format("{}, {} cores, {}", machine["processor"].get<std::string>(),
                               machine["cores"].get<std::int64_t>(), machine["system"].get<std::string>())},
       {"reading", rates_of("reading")},
       {"first epoch", rates_of("first_epoch") + ", including reading"},
       {"each epoch",
        rates(report["images_per_second"]["median"], report["images_per_core_second"]["median"]) +
            ", from memory"}});
}

int run(int argc, char** argv) {
  LoaderBenchOptions options;
  options.data.dataset = "folder";
  CommandLine line = loader_command_line(options);
  if (!line.parse(argc, argv)) return 0;
  check_output_file("--json", options.json);
  warn_if_busy("convoy-bench-loader");
  const Machine host = this_machine();
  Json report = {
      {"version", kVersion},
      {"machine", {{"processor", host.processor}, {"cores", host.cores.size()}, {"system", host.system}}},
      {"batch_size", options.batch_size},
      {"workers", options.data.workers}};
  report.update(measure_loader(options));
  print_report(report);
  write_json(options.json, report);
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-loader", [&] { return convoy::bench::run(argc, argv); });
}
