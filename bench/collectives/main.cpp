// convoy-bench-allreduce: measures collectives as nccl-tests does, optionally compared with MPI's
// collectives.
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "bench/collectives/report.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/ranks/local_ranks.h"
#include "convoy/apps/train/options/options.h"
#include "convoy/comm/nccl/nccl_communicator.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy::bench {
namespace {

constexpr const char* kProgram = "convoy-bench-allreduce";

void print(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

int run_rank(CollectiveOptions& options, const CommandLine& line, const CollectivePlan& plan, Job& job) {
  job.verify_consistency(consistency_entries_of(line, {"json", "output_file", "device", "threads"}));
  const DeviceContext device =
      open_device(options.compute, parse_precision("fp32"), job.info(), job.ranks_on_my_cores());
  job.connect(device);
  dist::MpiCollective mpi;
  if (options.beside_mpi) {
    check(device.kind() == DeviceKind::cpu, "--beside-mpi: found --device {}, expected cpu", device.name());
    mpi = dist::mpi_collective(job.rendezvous(), "--beside-mpi");
  }
  std::unique_ptr<dist::Communicator> alone, alone_on_gpu;  // of a job of one rank, which has none
  if (job.is_alone()) {
    const dist::CommOptions comm{.timeout_seconds = options.job.comm_timeout,
                                 .check_always = options.job.debug_comm};
    alone = dist::make_self_communicator(comm);
    if (device.kind() == DeviceKind::cuda)
      alone_on_gpu = dist::make_nccl_communicator(dist::make_self_communicator(comm), device, comm);
  }
  dist::Communicator& control = alone ? *alone : *job.control();
  dist::Communicator& measured = alone_on_gpu ? *alone_on_gpu : alone ? *alone : *job.gradients();
  std::vector<std::vector<Case>> tables;
  for (const Collective collective : plan.collectives)
    tables.push_back(cases_of(plan, collective, job.info().world_size));

  std::optional<RunInfo> run_info;
  if (job.is_first()) {
    run_info = {.backend = measured.name(),
                .ranks = job.is_alone() ? fmt::format("one process, {}", measured.name()) : job.describe(),
                .machine = this_machine(),
                .threads = static_cast<int>(options.compute.threads),
                .hardware = device.hardware(),
                .all = job.all(),
                .devices = job.devices()};
    print(format_run_info(*run_info, plan));
    if (const auto warning = oversubscription_warning(job, device))
      fmt::print(stderr, "{}: warning: {}\n", kProgram, *warning);
  }
  CollectiveBench bench(plan, measured, control, std::move(mpi), static_cast<int>(options.compute.threads));
  std::vector<RowResult> rows;
  for (const std::vector<Case>& cases : tables) {
    if (run_info) print(format_header(cases.front().collective, plan));
    const std::vector<RowResult> found = bench.run(cases, [&](const RowResult& row) {
      if (run_info) print(format_row(row));
    });
    rows.insert(rows.end(), found.begin(), found.end());
  }
  for (const auto* own : {&alone_on_gpu, &alone})
    if (*own) (*own)->finish();
  const std::int64_t wrong = count_wrong(rows);
  if (run_info) {
    print(format_footer(rows));
    if (!options.json.empty())
      io::write_file_atomically(options.json, json_text(json_of(*run_info, plan, rows), 2) + "\n");
    if (!options.csv.empty()) io::write_file_atomically(options.csv, to_csv(rows));
    if (wrong > 0)
      print_error(kProgram,
                  fmt::format("found {} wrong {} (see the column #wrong), expected none; do not train with "
                              "this configuration",
                              wrong, wrong == 1 ? "value" : "values"));
  }
  return static_cast<int>(wrong == 0 ? ExitCode::ok : ExitCode::peer);  // the same on all ranks
}

int run(int argc, char** argv) {
  CollectiveOptions options;
  CommandLine line = collective_command_line(options);
  if (!line.parse(argc, argv)) return 0;
  const CollectivePlan plan = make_plan(options, line);
  check_output_file("--json", options.json);
  check_output_file("--output_file", options.csv);
  LocalRanks ranks(options.job, options.compute);
  return ranks.run(kProgram, [&](Job& job) {
    CollectiveOptions own = options;  // opening the device completes them for this rank
    return run_rank(own, line, plan, job);
  });
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-allreduce", [&] { return convoy::bench::run(argc, argv); });
}
