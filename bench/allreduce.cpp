// convoy-bench-allreduce: what the collectives of a job's ranks take, as nccl-tests measure those of NCCL,
// and beside MPI's own in the same processes.
#include <cstdio>
#include <memory>
#include <optional>

#include "apps/doctor_host.h"
#include "apps/local_ranks.h"
#include "apps/run_main.h"
#include "apps/setup.h"
#include "bench/collective_report.h"
#include "comm/nccl_communicator.h"
#include "comm/self_communicator.h"
#include "engine/io/file.h"
#include "kernels/runtime/check.h"

namespace convoy::bench {
namespace {

constexpr const char* kProgram = "convoy-bench-allreduce";

void print(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

/// The communicators of one rank: the job's, or where it is alone two of its own.
class Communicators {
 public:
  Communicators(Job& job, const Device& device, const JobOptions& options) : job_(job) {
    if (!job.is_alone()) return;
    const CommOptions comm{.timeout_seconds = options.comm_timeout, .check_always = options.debug_comm};
    numbers_ = make_self_communicator(comm);
    if (device.kind() == DeviceKind::cuda)
      measured_ = make_nccl_communicator(make_self_communicator(comm), device, comm);
  }

  Communicator& measured() { return measured_ ? *measured_ : numbers_ ? *numbers_ : *job_.gradients(); }
  Communicator& numbers() { return numbers_ ? *numbers_ : *job_.control(); }
  void finish() {
    if (measured_) measured_->finish();
    if (numbers_) numbers_->finish();
  }

 private:
  Job& job_;
  std::unique_ptr<Communicator> numbers_, measured_;
};

Scene describe(const Job& job, Communicator& measured, const Device& device, std::int64_t threads) {
  const doctor::RankFacts facts = doctor::examine_host(environment_variables());
  return {.backend = measured.name(),
          .ranks = job.is_alone() ? fmt::format("one process, {}", measured.name()) : job.describe(),
          .processor = facts.cpu.processor,
          .system = facts.system,
          .cores = static_cast<int>(facts.cpu.cores.size()),
          .machine_cores = facts.cpu.machine_cores,
          .threads = static_cast<int>(threads),
          .hardware = device.hardware(),
          .libraries = facts.libraries,
          .all = job.all(),
          .devices = job.devices()};
}

/// What all ranks must have been told alike.
std::vector<Claim> claims_of(const CommandLine& line) {
  std::vector<Claim> claims;
  for (const auto& [flag, value] : flags_by_name(line.config()))
    if (flag != "json" && flag != "device" && flag != "threads") claims.push_back({"--" + flag, value});
  return claims;
}

int run_rank(CollectiveOptions& options, const CommandLine& line, const CollectivePlan& plan, Job& job) {
  job.check_same(claims_of(line));
  const Device device =
      open_device(options.compute, parse_precision("fp32"), job.info(), job.ranks_on_my_cores());
  job.connect(device);
  std::unique_ptr<MpiCollectives> mpi;
  if (options.beside_mpi) {
    check(device.kind() == DeviceKind::cpu,
          "--beside-mpi: found --device {}, expected cpu, whose memory MPI has", device.name());
    mpi = make_mpi_collectives(job.rendezvous(), "--beside-mpi");
  }
  Communicators comms(job, device, options.job);
  std::vector<std::vector<Case>> tables;
  for (const Collective collective : plan.collectives)
    tables.push_back(cases_of(plan, collective, job.info().world));

  std::optional<Scene> scene;
  if (job.is_first()) {
    scene = describe(job, comms.measured(), device, options.compute.threads);
    print(text_of_scene(*scene, plan));
    if (const auto warning = warning_of_cores(job, device))
      fmt::print(stderr, "{}: warning: {}\n", kProgram, *warning);
  }
  CollectiveBench bench(plan, comms.measured(), comms.numbers(), mpi.get(),
                        static_cast<int>(options.compute.threads));
  std::vector<RowResult> rows;
  for (const std::vector<Case>& cases : tables) {
    if (scene) print(text_of_header(cases.front().collective, plan));
    const std::vector<RowResult> found = bench.run(cases, [&](const RowResult& row) {
      if (scene) print(text_of_row(row));
    });
    rows.insert(rows.end(), found.begin(), found.end());
  }
  comms.finish();
  const std::int64_t wrong = count_wrong(rows);
  if (scene) {
    print(text_of_footer(rows));
    if (!options.json.empty())
      write_file_atomically(options.json, json_of(*scene, plan, rows).dump(2) + "\n");
    if (wrong > 0)
      print_error(kProgram, fmt::format("{} wrong {}: #wrong says where; do not train through that", wrong,
                                        wrong == 1 ? "value" : "values"));
  }
  return static_cast<int>(wrong == 0 ? ExitCode::ok : ExitCode::peer);  // the same on all ranks
}

int run(int argc, char** argv) {
  CollectiveOptions options;
  CommandLine line = collective_command_line(options);
  CollectivePlan plan;
  std::optional<LocalRanks> ranks;
  in_turn([&] {
    if (!line.parse(argc, argv)) return;
    plan = make_plan(options, line);
    ranks.emplace(options.job, options.compute);
  });
  if (!ranks) return 0;
  return ranks->run(kProgram, [&](Job& job) {
    CollectiveOptions own = options;  // a rank's, which its device completes
    return run_rank(own, line, plan, job);
  });
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-allreduce", [&] { return convoy::bench::run(argc, argv); });
}
