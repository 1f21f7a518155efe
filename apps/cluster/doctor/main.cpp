// convoy-doctor: the first program to run on a new machine or cluster. It collects facts about each rank and
// host, probes the links between hosts, runs collectives with known results, and prints problems with advice.
#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <optional>

#include "convoy/apps/cluster/doctor/doctor.h"
#include "convoy/apps/flags/flag_names.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/apps/ranks/job.h"
#include "convoy/comm/cluster/store/store_rendezvous.h"
#include "convoy/comm/nccl/nccl_communicator.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/engine/io/file.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"
#include "convoy/kernels/base/printable.h"

namespace convoy::doctor {
namespace {

constexpr const char* kProgram = "convoy-doctor";

struct Options {
  std::string device = "auto";
  std::string json;
  std::string post_mortem;
  JobOptions job{.comm_timeout = 30};
};

CommandLine command_line(Options& o) {
  CommandLine line(kProgram,
                   "Checks the hosts, devices, libraries and network of a job, and suggests fixes. Start it "
                   "with the same launcher and number of ranks as the training.");
  line.group("Checks");
  line.add("device", &o.device, "Device type; auto: GPUs if there are any",
           {.value = "NAME", .choices = {"auto", "cpu", "cuda"}});
  line.add("json", &o.json, "Report file (JSON), written by rank 0", {.value = "FILE"});
  line.add("post-mortem", &o.post_mortem,
           "Explains why a training has failed, from the flight recorders in its output directory, and exits",
           {.value = "DIR"});
  add_job_flags(line, o.job);
  return line;
}

void print(const std::string& text) {
  fmt::print("{}", without_control_characters(text));
  std::fflush(stdout);
}

/// The examination on one rank, after the rendezvous.
class Examiner {
 public:
  Examiner(const Options& options, RankFacts local, std::unique_ptr<dist::Rendezvous> rendezvous)
      : options_(options), rendezvous_(std::move(rendezvous)), local_(std::move(local)) {
    examination_.device = options.device;
    examination_.allow_shared_gpu = options.job.allow_shared_gpu;
    const dist::RankInfo& info = rendezvous_->info();
    local_.rank = info.rank;
    local_.world_size = info.world_size;
    local_.local_rank = info.local_rank;
    local_.node = info.node;
    local_.host = info.host;
    local_.met_by = info.source;
    local_.source = rendezvous_->note();
  }

  int run() {
    compare_options();
    gather_facts();
    if (is_first()) print(format_facts(examination_) + "\n");
    if (rendezvous_->info().nodes > 1)
      examination_.links =
          probe_links(*rendezvous_, examination_.ranks, port_probes_ ? &*port_probes_ : nullptr);
    exchange_data();
    const Findings findings = check_all(examination_);
    if (is_first()) {
      print(format_exchanges(examination_) + "\n" + format_findings(findings));
      if (!options_.json.empty()) io::write_file_atomically(options_.json, json_of(examination_, findings));
    }
    rendezvous_->barrier();  // mpirun ends all ranks when one exits with an error
    return static_cast<int>(verdict(findings));
  }

 private:
  bool is_first() const { return rendezvous_->info().rank == 0; }

  /// Throws UsageError on all ranks if their options differ, which would lead to a deadlock later.
  void compare_options() {
    const std::string local = fmt::format("--device {} --comm {} --allow-shared-gpu {}", options_.device,
                                          options_.job.comm, options_.job.allow_shared_gpu);
    const std::vector<std::string> all = rendezvous_->all_gather(local);
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      check(all[rank] == all.front(), "ranks do not agree: rank {} has {}, rank 0 has {}", rank, all[rank],
            all.front());
    const bool wants_gpus = options_.job.comm == "nccl";
    check(options_.job.comm != "thread",
          "--comm thread: needs threads of one process, found processes; expected auto, nccl, mpi, "
          "shm or tcp");
    check(!wants_gpus || options_.device != "cpu", "--comm nccl: found --device cpu, expected auto or cuda");
    check(options_.job.comm == "auto" || wants_gpus || options_.device != "cuda",
          "--comm {}: supports only the CPU, found --device cuda; expected nccl", options_.job.comm);
  }

  void gather_facts() {
    local_.gpu = examine_gpus();
    if (options_.job.comm == "auto" || options_.job.comm == "nccl")
      gpu_ = open_gpu(options_.device, rendezvous_->info(), local_.gpu);
    if (local_.local_rank == 0 && rendezvous_->info().nodes > 1) port_probes_.emplace(local_.interfaces);
    rendezvous_->barrier();
    local_.clock = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
    for (const std::string& text : rendezvous_->all_gather(json_text(nlohmann::json(local_))))
      examination_.ranks.push_back(nlohmann::json::parse(text).get<RankFacts>());
  }

  /// Runs the test collectives with the CPU communicator of a training run and, if every rank has a GPU, with
  /// NCCL.
  void exchange_data() {
    std::unique_ptr<dist::Communicator> control;
    const std::string kind = rendezvous_->info().world_size == 1
                                 ? "one rank"
                                 : cpu_communicator_kind(options_.job.comm, rendezvous_->info());
    // The name that the communicator would have, for the report of a communicator that could not be created.
    const std::string between = rendezvous_->info().source == "mpi" ? "mpi" : "tcp";
    attempt(kind == "hierarchical" ? "shm+" + between : kind, [&] {
      control = rendezvous_->info().world_size == 1
                    ? dist::make_self_communicator()
                    : make_cpu_communicator(kind, *rendezvous_, comm_options());
      return try_collectives(*control->split(0), DeviceContext::create_cpu({.threads = 1}));
    });
    if (!can_exchange_between_gpus()) {
      if (control && examination_.collectives.back().error.empty()) control->finish();
      return;
    }
    attempt("nccl", [&] {
      if (examination_.allow_shared_gpu) dist::let_nccl_share_gpus(local_.rank);
      const auto gpus = dist::make_nccl_communicator(std::move(control), *gpu_, comm_options());
      return try_collectives(*gpus, *gpu_, 1 << 22);  // enough for a bandwidth over NVLink
    });
  }

  dist::CommOptions comm_options() const {
    return {.timeout_seconds = options_.job.comm_timeout,
            .check_always = options_.job.debug_comm,
            .all_reduce = all_reduce_of(options_.job, rendezvous_->info().nodes),
            .nccl_ctas = static_cast<int>(options_.job.nccl_ctas)};
  }

  /// Returns whether all ranks have a GPU, the build has NCCL and no earlier collective failed.
  bool can_exchange_between_gpus() const {
    const std::vector<RankFacts>& ranks = examination_.ranks;
    if (ranks.size() == 1 || !dist::nccl_supported()) return false;
    if (std::ranges::any_of(examination_.collectives,
                            [](const CollectiveFacts& facts) { return !facts.error.empty(); }))
      return false;
    if (std::ranges::any_of(ranks, [](const RankFacts& facts) { return facts.gpu.index < 0; })) return false;
    const Findings gpus = check_gpus(examination_);
    return verdict(gpus) == ExitCode::ok;
  }

  /// Calls `body` and gathers the results of all ranks. Collective call.
  template <class F>
  void attempt(const std::string& name, const F& body) {
    CollectiveFacts local{.rank = local_.rank};
    try {
      local = body();
    } catch (const UsageError&) {
      throw;  // thrown on all ranks
    } catch (const std::exception& error) {
      local.error = error.what();
    }
    local.name = name;
    local.host = local_.host;
    const std::vector<std::string> all = rendezvous_->all_gather(json_text(nlohmann::json(local)));
    for (const std::string& text : all)
      examination_.collectives.push_back(nlohmann::json::parse(text).get<CollectiveFacts>());
    print(format_gather(local));  // every rank prints its own result
    rendezvous_->barrier();
  }

  const Options& options_;
  std::unique_ptr<dist::Rendezvous> rendezvous_;
  RankFacts local_;
  Examination examination_;
  std::optional<DeviceContext> gpu_;
  std::optional<PortProbes> port_probes_;
};

/// Reports a failed rendezvous, with the findings that this rank can make without the others.
[[noreturn]] void fail_alone(const Error& error, RankFacts facts) {
  const std::optional<int> rank = launched_rank();
  print_error(kProgram, message_with_flag(error), rank);
  facts.rank = rank.value_or(0);
  if (const Findings findings = check_failed_rendezvous(facts); !findings.empty())
    fmt::print(stderr, "{}", without_control_characters(format_findings(findings)));
  throw ReportedError(error.code(), error.what());
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line = command_line(options);
  const dist::Variables variables = dist::environment_variables();
  if (!line.parse(argc, argv)) return 0;
  if (!options.post_mortem.empty()) {
    print(examine_post_mortem(options.post_mortem));
    return 0;
  }
  RankFacts facts = examine_host(variables);
  std::unique_ptr<dist::Rendezvous> rendezvous;
  try {
    rendezvous = dist::Rendezvous::init({.init_method = options.job.rendezvous,
                                         .timeout_seconds = options.job.comm_timeout,
                                         .by_store = dist::rendezvous_by_store});
  } catch (const Error& error) {
    fail_alone(error, facts);
  }
  dist::Rendezvous& all_ranks = *rendezvous;
  Examiner examiner(options, std::move(facts), std::move(rendezvous));
  try {
    return examiner.run();
  } catch (const UsageError& error) {  // the same on all ranks
    const dist::RankInfo& info = all_ranks.info();
    print_error(kProgram, message_with_flag(error),
                info.world_size > 1 ? std::optional(info.rank) : std::nullopt);
    all_ranks.barrier();  // a rank that exits during the check would be a lost peer to the others
    throw ReportedError(error.code(), error.what());
  }
}

}  // namespace
}  // namespace convoy::doctor

int main(int argc, char** argv) {
  return convoy::run_main("convoy-doctor", [&] { return convoy::doctor::run(argc, argv); });
}
