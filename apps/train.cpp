// convoy-train: from flags to a trained network.
#include <algorithm>
#include <nlohmann/json.hpp>

#include "apps/input_spec.h"
#include "apps/plan_cache.h"
#include "apps/reporter.h"
#include "apps/run_folder.h"
#include "apps/run_main.h"
#include "apps/samples.h"
#include "apps/signals.h"
#include "apps/version.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

void write_trace(const Profiler& profiler, const std::string& file) {
  if (!file.empty()) write_file_atomically(file, profiler.chrome_trace(0, "convoy-train"));
}

void write_start_files(const Setup& setup, const RunFolder& folder) {
  write_file_atomically(folder.path("config.toml"), setup.config);
  if (folder.checkpoint()) return;
  write_samples(folder.path("samples.png"), setup.data.train,
                {.seed = static_cast<std::uint64_t>(setup.options.seed), .transform = setup.transform});
}

/// The training itself: 0, or 128 + the signal that stopped it.
int train(const Setup& setup, const RunFolder& folder) {
  const TrainOptions& options = setup.options;
  CheckpointFolder checkpoints(folder.path("checkpoints"));
  checkpoints.set_keep_last(static_cast<int>(options.keep_last));
  checkpoints.set_keep_best(options.keep_best);
  Profiler profiler;
  profiler.enable(!options.trace.empty());
  TrainerParts parts{.model = setup.model,
                     .device = setup.device,
                     .data = setup.data,
                     .transform = setup.transform,
                     .checkpoints = checkpoints,
                     .extra = {{"config", setup.config}, {"version", kVersion}},
                     .profiler = &profiler,
                     .stop_signal = StopSignals::received};
  write_input_spec(
      {setup.data.name, setup.data.classes, setup.data.image_shape(), setup.transform.evaluation()},
      parts.extra);
  Trainer trainer(options, std::move(parts));

  PlanCache plans(options.compute.deterministic ? "none" : options.compute.plan_cache, setup.device);
  std::vector<std::string> warnings = setup.warnings;
  if (auto warning = plans.load()) warnings.push_back(std::move(*warning));

  print_table(describe(setup, trainer.total_steps()));
  if (options.dry_run) {
    const double loss = trainer.try_batch();
    fmt::print("dry run: one batch gives a loss of {:.4f}; nothing was written\n", loss);
    return 0;
  }
  const auto add = [&](const std::vector<std::string>& more) {
    warnings.insert(warnings.end(), more.begin(), more.end());
  };
  add(folder.warnings());
  if (const auto& checkpoint = folder.checkpoint()) {
    add(compare_flags(stored_flags(read_manifest(*checkpoint)), flags_by_name(setup.config), *checkpoint));
    if (auto warning = trainer.resume(*checkpoint)) warnings.push_back(std::move(*warning));
    if (trainer.finished()) {
      if (const auto result = read_result(folder.path("log.jsonl"))) {
        fmt::print("this training is finished, there is nothing left to do\n");
        print_result(*result, folder.out().string());
        return 0;
      }
    }
    fmt::print("going on from {}\n", checkpoint->string());
  }

  // Now, so that a path that cannot be written is found before the training.
  write_trace(profiler, options.trace);
  folder.create();
  RunLog log(folder.path("log.jsonl"),
             folder.checkpoint() ? std::optional(trainer.state().step) : std::nullopt);
  write_start_files(setup, folder);
  Progress progress(trainer.total_steps(), trainer.steps_per_epoch());
  Reporter reporter(log, progress);
  reporter.start(setup, trainer);
  for (const std::string& warning : warnings) reporter.warn(warning, trainer.state().step);

  const StopSignals signals;
  const int signal = trainer.run(reporter.callbacks());
  write_trace(profiler, options.trace);
  if (const auto warning = plans.store()) reporter.warn(*warning, trainer.state().step);
  if (signal != 0) {
    progress.line(
        fmt::format("stopped by signal {} after step {}, which is saved; --resume auto goes on from there",
                    signal, trainer.state().step));
    return 128 + signal;
  }
  const nlohmann::ordered_json result = result_of(setup, trainer.state());
  reporter.result(result);
  print_result(result, folder.out().string());
  return 0;
}

int run(int argc, char** argv) {
  TrainOptions options;
  CommandLine line = train_command_line(options);
  if (!line.parse(argc, argv)) return 0;
  if (!options.config.empty()) line.apply_config(options.config);
  if (options.summary) {
    fmt::print("{}", summarize(options));
    return 0;
  }
  // On a copy, before any download: the data set may still turn into another, with another recipe.
  TrainOptions as_asked = options;
  resolve_recipe(as_asked);
  check_consistency(as_asked, line);
  const Precision precision = parse_precision(options.precision);
  Device device = open_device(options.compute, precision);
  check_precision(precision, device);
  check_plan_cache(options.compute, device);
  if (options.print_config) {
    resolve_recipe(options);
    fmt::print("{}", line.config());
    return 0;
  }
  const DataLocation location = locate_data(options.data);
  options.data.dataset = location.dataset;
  resolve_recipe(options);
  const RunFolder folder(options);
  const Setup setup = set_up(options, line, std::move(device), location);
  return train(setup, folder);
}

}  // namespace
}  // namespace convoy

int main(int argc, char** argv) {
  return convoy::run_main("convoy-train", [&] { return convoy::run(argc, argv); });
}
