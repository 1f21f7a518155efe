// convoy-doctor: the first thing to run on a new machine or cluster. Each rank tells of itself and its host,
// hosts try to reach each other, all ranks exchange something whose result is known, and what is wrong is
// named together with what to do about it.
#include <algorithm>
#include <chrono>
#include <optional>

#include "apps/debugger.h"
#include "apps/doctor_checks.h"
#include "apps/doctor_collectives.h"
#include "apps/doctor_gpu.h"
#include "apps/doctor_host.h"
#include "apps/doctor_network.h"
#include "apps/doctor_report.h"
#include "apps/job.h"
#include "apps/run_main.h"
#include "comm/nccl_communicator.h"
#include "comm/self_communicator.h"
#include "engine/io/file.h"
#include "kernels/runtime/check.h"

namespace convoy::doctor {
namespace {

constexpr const char* kProgram = "convoy-doctor";

struct Options {
  std::string device = "auto";
  std::string json;
  JobOptions job{.comm_timeout = 30};
};

CommandLine command_line(Options& o) {
  CommandLine line(
      kProgram,
      "What a job's ranks find: hosts, devices, libraries, ways between them; what is wrong, and the "
      "fix. Start it as the training is to be started.");
  line.add("device", &o.device, "What ranks are to compute on; auto: GPUs where there are any",
           {.value = "NAME", .choices = {"auto", "cpu", "cuda"}});
  line.add("json", &o.json, "Write all that was found to this file too, by rank 0", {.value = "FILE"});
  add_job_flags(line, o.job);
  return line;
}

void print(const std::string& text) {
  fmt::print("{}", text);
  std::fflush(stdout);
}

double clock_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

/// One rank that has met the others, and what it finds with them.
class Examiner {
 public:
  Examiner(const Options& options, RankFacts mine, std::unique_ptr<Rendezvous> rendezvous)
      : options_(options), rendezvous_(std::move(rendezvous)), mine_(std::move(mine)) {
    examination_.device = options.device;
    examination_.allow_shared_gpu = options.job.allow_shared_gpu;
    const RankInfo& info = rendezvous_->info();
    mine_.rank = info.rank;
    mine_.world = info.world;
    mine_.local_rank = info.local_rank;
    mine_.node = info.node;
    mine_.host = info.host;
    mine_.met_by = info.source;
    mine_.source = rendezvous_->note();
  }

  int run() {
    wait_for_debugger(kProgram, options_.job.wait_debugger, *rendezvous_, options_.job.comm);
    compare_options();
    gather_facts();
    if (is_first()) print(text_of_facts(examination_) + "\n");
    if (rendezvous_->info().nodes > 1)
      examination_.links = try_links(*rendezvous_, examination_.ranks, doors_ ? &*doors_ : nullptr);
    exchange_data();
    const Findings findings = check_all(examination_);
    if (is_first()) {
      print(text_of_exchanges(examination_) + "\n" + text_of_findings(findings));
      if (!options_.json.empty()) write_file_atomically(options_.json, json_of(examination_, findings));
    }
    rendezvous_->barrier();  // mpirun ends all ranks when one leaves with an error
    return static_cast<int>(verdict(findings));
  }

 private:
  bool is_first() const { return rendezvous_->info().rank == 0; }

  /// Whatever ranks are told differently they would wait for each other in.
  void compare_options() {
    const std::string mine = fmt::format("--device {} --comm {} --allow-shared-gpu {}", options_.device,
                                         options_.job.comm, options_.job.allow_shared_gpu);
    const std::vector<std::string> all = rendezvous_->all_gather(mine);
    for (std::size_t rank = 0; rank < all.size(); ++rank)
      check(all[rank] == all.front(), "ranks do not agree: rank {} has {}, rank 0 has {}", rank, all[rank],
            all.front());
    const bool wants_gpus = options_.job.comm == "nccl";
    check(options_.job.comm != "thread",
          "--comm thread: between the threads of one process, found processes; expected auto, nccl, mpi, shm "
          "or "
          "gloo");
    check(!wants_gpus || options_.device != "cpu", "--comm nccl: found --device cpu, expected auto or cuda");
    check(options_.job.comm == "auto" || wants_gpus || options_.device != "cuda",
          "--comm {}: carries what lies in the CPU's memory, found --device cuda; expected nccl",
          options_.job.comm);
  }

  void gather_facts() {
    mine_.gpu = examine_gpus();
    if (options_.job.comm == "auto" || options_.job.comm == "nccl")
      gpu_ = open_gpu(options_.device, rendezvous_->info(), mine_.gpu);
    if (mine_.local_rank == 0 && rendezvous_->info().nodes > 1) doors_.emplace(mine_.interfaces);
    rendezvous_->barrier();
    mine_.clock = clock_seconds();
    mine_.cpu.copy_rate = measure_copy_rate();
    for (const std::string& text : rendezvous_->all_gather(nlohmann::json(mine_).dump()))
      examination_.ranks.push_back(nlohmann::json::parse(text).get<RankFacts>());
  }

  /// Through memory or the network of the CPU, as a training's small exchanges, and between GPUs where every
  /// rank has one.
  void exchange_data() {
    std::unique_ptr<Communicator> control;
    const std::string kind = rendezvous_->info().world == 1
                                 ? "one rank"
                                 : cpu_communicator_kind(options_.job.comm, rendezvous_->info());
    // As communicators call themselves: also where there is none, since it could not be made.
    const std::string between = rendezvous_->info().source == "mpi" ? "mpi" : "gloo";
    attempt(kind == "hierarchical" ? "shm+" + between : kind, [&] {
      control = make_control(kind);
      return try_collectives(*control->split(0), Device::cpu({.threads = 1}));
    });
    if (!can_exchange_between_gpus()) {
      if (control && examination_.collectives.back().error.empty()) control->finish();
      return;
    }
    attempt("nccl", [&] {
      if (examination_.allow_shared_gpu) let_nccl_share_gpus(mine_.rank);
      const auto gpus = make_nccl_communicator(std::move(control), *gpu_, comm_options());
      return try_collectives(*gpus, *gpu_);
    });
  }

  CommOptions comm_options() const {
    return {.timeout_seconds = options_.job.comm_timeout, .check_always = options_.job.debug_comm};
  }

  std::unique_ptr<Communicator> make_control(const std::string& kind) {
    if (rendezvous_->info().world == 1) return make_self_communicator();
    return make_cpu_communicator(kind, *rendezvous_, comm_options());
  }

  /// Only where all ranks could, and what went before worked.
  bool can_exchange_between_gpus() const {
    const std::vector<RankFacts>& ranks = examination_.ranks;
    if (ranks.size() == 1 || !nccl_supported()) return false;
    if (std::any_of(examination_.collectives.begin(), examination_.collectives.end(),
                    [](const CollectiveFacts& facts) { return !facts.error.empty(); }))
      return false;
    if (std::any_of(ranks.begin(), ranks.end(), [](const RankFacts& facts) { return facts.gpu.index < 0; }))
      return false;
    const Findings gpus = check_gpus(examination_);
    return verdict(gpus) == ExitCode::ok;
  }

  /// body, on all ranks; then what became of it, from all.
  template <class F>
  void attempt(const std::string& name, const F& body) {
    CollectiveFacts mine{.rank = mine_.rank};
    try {
      mine = body();
    } catch (const UsageError&) {
      throw;  // on all ranks alike
    } catch (const std::exception& error) {
      mine.error = error.what();
    }
    mine.name = name;
    mine.host = mine_.host;
    const std::vector<std::string> all = rendezvous_->all_gather(nlohmann::json(mine).dump());
    for (const std::string& text : all)
      examination_.collectives.push_back(nlohmann::json::parse(text).get<CollectiveFacts>());
    print(text_of_gather(mine));  // each rank its own
    rendezvous_->barrier();
  }

  const Options& options_;
  std::unique_ptr<Rendezvous> rendezvous_;
  RankFacts mine_;
  Examination examination_;
  std::optional<Device> gpu_;
  std::optional<Doors> doors_;
};

/// Where ranks have not met each has only itself to look at.
[[noreturn]] void fail_alone(const Error& error, RankFacts facts, const Variables& variables) {
  print_error(kProgram, error.what());
  try {
    if (const auto launch = launch_from(variables)) facts.rank = launch->rank;
  } catch (const Error&) {  // which is then what was said
  }
  if (const Findings findings = check_lonely(facts); !findings.empty())
    fmt::print(stderr, "{}", text_of_findings(findings));
  throw ReportedError(error.code(), error.what());
}

int run(int argc, char** argv) {
  Options options;
  CommandLine line = command_line(options);
  const Variables variables = environment_variables();
  bool goes_on = false;
  in_turn([&] { goes_on = line.parse(argc, argv); });
  if (!goes_on) return 0;
  RankFacts facts = examine_host(variables);
  std::unique_ptr<Rendezvous> rendezvous;
  try {
    in_turn([&] {
      rendezvous =
          Rendezvous::meet({.where = options.job.rendezvous, .timeout_seconds = options.job.comm_timeout});
    });
  } catch (const Error& error) {
    fail_alone(error, facts, variables);
  }
  const bool speaks = rendezvous->info().rank == 0 || rendezvous->info().source != "mpi";
  Rendezvous& others = *rendezvous;
  Examiner examiner(options, std::move(facts), std::move(rendezvous));
  try {
    return examiner.run();
  } catch (const UsageError& error) {  // the same on all ranks
    if (speaks) print_error(kProgram, error.what());
    others.barrier();
    throw ReportedError(error.code(), error.what());
  }
}

}  // namespace
}  // namespace convoy::doctor

int main(int argc, char** argv) {
  return convoy::run_main("convoy-doctor", [&] { return convoy::doctor::run(argc, argv); });
}
