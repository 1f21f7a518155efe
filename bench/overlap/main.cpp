// convoy-bench-overlap: measures how much gradient communication overlaps with backward on simulated links.
#include <optional>
#include <utility>

#include "bench/overlap/options.h"
#include "bench/overlap/timeline.h"
#include "convoy/apps/common/command_line.h"
#include "convoy/apps/common/compute.h"
#include "convoy/apps/common/run_main.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"

namespace convoy::bench {
namespace {

/// Measures real steps for each simulated row, and adds the results to the rows.
void run_all_on_links(const OverlapOptions& options, const std::vector<NamedPlan>& plans,
                      const DeviceContext& device, std::vector<OverlapRow>& rows) {
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
  std::optional<DeviceContext> device;
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
  fmt::print("{}", to_string(record, rows));
  if (!options.json.empty()) write_json(record, rows, options.json);
  if (!options.timeline.empty()) io::write_file_atomically(options.timeline, timeline_of(record, rows));
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-overlap", [&] { return convoy::bench::run(argc, argv); });
}
