// convoy-bench-overlap: how much of the gradients' communication backward hides, on links of any speed.
#include <optional>
#include <utility>

#include "apps/command_line.h"
#include "apps/compute.h"
#include "apps/run_main.h"
#include "bench/overlap_options.h"
#include "bench/overlap_timeline.h"
#include "engine/io/file.h"
#include "kernels/runtime/check.h"

namespace convoy::bench {
namespace {

/// Measures the real steps beside the simulated ones, a row at a time.
void run_all_on_links(const OverlapOptions& options, const std::vector<NamedPlan>& plans,
                      const Device& device, std::vector<OverlapRow>& rows) {
  LinkSteps steps(choice_of(options), device);
  for (OverlapRow& row : rows)
    for (const NamedPlan& plan : plans)
      if (plan.name == row.plan)
        row.real = steps.measure(static_cast<int>(options.real), plan.plan, row.sent, row.link);
}

int run(int argc, char** argv) {
  OverlapOptions options;
  CommandLine line = overlap_command_line(options);
  if (!line.parse(argc, argv)) return 0;
  check_options(line, options);
  const std::vector<Link> links = links_of(options);

  StepRecord record;
  std::optional<Device> device;
  if (options.replay.empty()) {
    const StepChoice choice = choice_of(options);
    device = open_device(options.compute, choice.precision);
    check_precision(choice.precision, *device);
    check(options.real == 0 || device->kind() == DeviceKind::cpu, "--real: found --device {}, expected cpu",
          device->name());
    record = record_step(choice, static_cast<int>(options.steps), *device);
    if (!options.record.empty()) write_record(record, options.record);
  } else {
    record = read_record(options.replay);
  }
  if (options.scale_to) record = scaled_to(std::move(record), *options.scale_to);

  const std::vector<NamedPlan> plans = compared_plans(record);
  std::vector<OverlapRow> rows = simulate_all(record, plans, links);
  if (options.real > 0) run_all_on_links(options, plans, *device, rows);
  fmt::print("{}", text_of(record, rows));
  if (!options.json.empty()) write_json(record, rows, options.json);
  if (!options.timeline.empty()) write_file_atomically(options.timeline, timeline_of(record, rows));
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-overlap", [&] { return convoy::bench::run(argc, argv); });
}
