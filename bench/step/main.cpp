// convoy-bench-step: measures whole training steps.
#include <nlohmann/json.hpp>

#include "bench/programs/results.h"
#include "bench/step/step.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/ranks/local_ranks.h"
#include "convoy/kernels/base/check.h"

namespace convoy::bench {
namespace {

using Json = nlohmann::ordered_json;

/// Measures on one rank, after the rendezvous.
int measure(StepOptions& options, const CommandLine& line, Job& job) {
  job.verify_consistency(  // the other flags select resources of one rank
      consistency_entries_of(line, {"device", "threads", "workers", "plan-cache", "json"}));
  TrainOptions& training = options.training;
  const Precision precision = parse_precision(training.precision);
  const DeviceContext device = open_device(training.compute, precision, job.info(), job.ranks_on_my_cores());
  check_precision(precision, device);
  check_algorithm_flags(training.compute, device);
  job.connect(device);
  if (job.is_first()) check_output_file("--json", options.json);
  if (options.count) {
    check(job.info().world_size == 1, "--count: found a world size of {}, expected 1", job.info().world_size);
    skip_libraries();
  }
  const auto data = job.make_once<data::DataSet>([&] { return step_images(options); });
  Json report = about_step(options, device.hardware(), job.describe(), job.info().world_size);
  if (job.is_first()) print_about(report);
  if (const auto warning = oversubscription_warning(job, device); warning && job.is_first())
    fmt::print(stderr, "convoy-bench-step: warning: {}\n", *warning);
  // With several ranks, those that wait for this one use their cores.
  if (!options.count && job.is_alone()) warn_if_busy("convoy-bench-step");
  const StepFigures figures = measure_steps(options, device, *data, job);
  if (!job.is_first()) return 0;
  if (options.count) {
    fmt::print("\n{}", step_counts_table(figures.launches, *training.batch_size));
    report["counts"] = step_counts_json(figures.launches);
  } else {
    const Json measured = to_json(figures);
    print_figures(measured);
    report.update(measured);
  }
  write_json(options.json, report);
  return 0;
}

int run(int argc, char** argv) {
  StepOptions options;
  CommandLine line = step_command_line(options);
  if (!line.parse(argc, argv)) return 0;
  line.settle();
  resolve(options);
  check_consistency(options, line);
  if (options.count) require_counting();
  LocalRanks ranks(options.training.job, options.training.compute);
  return ranks.run("convoy-bench-step", [&](Job& job) {
    StepOptions own = options;  // opening the device completes them for this rank
    const CommandLine flags = step_command_line(own);
    return measure(own, flags, job);
  });
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-step", [&] { return convoy::bench::run(argc, argv); });
}
