#include "apps/job.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>

#include "apps/debugger.h"
#include "apps/endings.h"
#include "comm/environment.h"
#include "comm/gloo_communicator.h"
#include "comm/gpu_sharing.h"
#include "comm/hierarchical_communicator.h"
#include "comm/mpi_communicator.h"
#include "comm/nccl_communicator.h"
#include "comm/shm_communicator.h"
#include "comm/thread_communicator.h"
#include "comm/thread_rendezvous.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

// mpirun ends a job when its first process fails, and takes that one's exit code. So ranks speak, and leave,
// one after the other, and the first one speaks for all: rank 0 if it knows a cause, since all may have met
// the same; another one that does; rank 0 if nobody knows more than that a rank is missing. Without mpirun
// everybody has a terminal, or a log, of its own, and tells what it knows.
constexpr std::chrono::milliseconds kOtherCauses{1500};
constexpr std::chrono::milliseconds kRankZero{4000};
constexpr std::chrono::milliseconds kOthers{10000};

/// The cores that this process may run on: "ff".
std::string affinity_text() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  if (sched_getaffinity(0, sizeof mask, &mask) != 0) return "";
  std::string text;
  for (int core = 0; core < CPU_SETSIZE; core += 4) {
    int digit = 0;
    for (int bit = 0; bit < 4; ++bit) digit |= CPU_ISSET(core + bit, &mask) ? 1 << bit : 0;
    text += "0123456789abcdef"[digit];
  }
  text.erase(text.find_last_not_of('0') + 1);
  return text;
}

}  // namespace

std::string cpu_communicator_kind(const std::string& comm, const RankInfo& info) {
  if (comm != "auto" && comm != "nccl") return comm;
  if (info.source == "threads") return "thread";
  if (info.nodes == 1) return "shm";
  if (info.nodes < info.world) return "hierarchical";
  return info.source == "mpi" ? "mpi" : "gloo";
}

std::unique_ptr<Communicator> make_cpu_communicator(const std::string& kind, Rendezvous& rendezvous,
                                                    const CommOptions& options) {
  const RankInfo& info = rendezvous.info();
  if (kind == "mpi") return make_mpi_communicator(rendezvous, options);
  if (kind == "thread") return make_thread_communicator(rendezvous, options);
  if (kind == "gloo") return make_gloo_communicator(rendezvous, options);
  if (kind == "hierarchical") return make_hierarchical_communicator(rendezvous, {.comm = options});
  check(info.nodes == 1, "--comm shm: found ranks on {} hosts, expected one; use mpi or gloo", info.nodes);
  return make_shm_communicator(info.rank, info.world,
                               [&](const std::string& text) { return rendezvous.all_gather(text); },
                               {.comm = options});
}

void with_patience(Rendezvous& rendezvous, const std::string& comm,
                   const std::function<void(Communicator&)>& body) {
  constexpr double kPatience = 86400;  // seconds; a rank that is gone is noticed before
  const RankInfo& info = rendezvous.info();
  const auto patient =
      make_cpu_communicator(cpu_communicator_kind(comm, info), rendezvous, {.timeout_seconds = kPatience});
  try {
    body(*patient);
    patient->finish();
  } catch (const std::exception& error) {
    patient->abort(fmt::format("rank {}: {}", info.rank, error.what()));  // the cause, not only that it left
    throw;
  }
}

void add_job_flags(CommandLine& line, JobOptions& options) {
  line.heading("Ranks");
  line.add("rendezvous", &options.rendezvous,
           "How the processes of a job meet: auto (as their launcher says), mpi, env (RANK, WORLD_SIZE, "
           "MASTER_ADDR, MASTER_PORT), tcp://HOST:PORT, file:///PATH",
           {.value = "PLACE"});
  line.add(
      "comm", &options.comm,
      "What carries gradients; auto: nccl between GPUs, on the CPU shm within a host, mpi or gloo between "
      "hosts; thread with --devices",
      {.value = "NAME", .choices = {"auto", "nccl", "mpi", "shm", "gloo", "thread"}});
  line.add("comm-timeout", &options.comm_timeout,
           "The longest that a rank waits for the others, in seconds: to meet, and in each exchange",
           {.value = "SECONDS", .least = 0.1, .most = 1e6});
  line.add("debug-comm", &options.debug_comm,
           "Between GPUs, compare what each rank is about to exchange every time, not in the first steps "
           "alone; the CPU always does");
  line.add("allow-shared-gpu", &options.allow_shared_gpu,
           "Let several ranks compute on one GPU: for tests, since it gains nothing");
  line.add("wait-debugger", &options.wait_debugger,
           "Let this rank say how to attach a debugger to it, and all wait until one is",
           {.value = "RANK", .default_is = "none", .in_config = false});
}

Job::Job(const JobOptions& options)
    : options_(options),
      rendezvous_(Rendezvous::meet({.where = options.rendezvous, .timeout_seconds = options.comm_timeout})) {
  open();
}

Job::Job(const JobOptions& options, std::unique_ptr<Rendezvous> rendezvous, Endings& endings)
    : options_(options), rendezvous_(std::move(rendezvous)), endings_(&endings) {
  open();
}

void Job::open() {
  if (is_alone()) return;
  const std::string mine = fmt::format("{} {}", info().node, affinity_text());
  ranks_on_my_cores_ = 0;
  for (const std::string& text : rendezvous_->all_gather(mine)) ranks_on_my_cores_ += text == mine ? 1 : 0;
  control_ = make_cpu_communicator(cpu_communicator_kind(options_.comm, info()), *rendezvous_,
                                   {.timeout_seconds = options_.comm_timeout});
}

Job::~Job() = default;

Communicator* Job::gradients() const { return gradients_ ? gradients_.get() : control_.get(); }

Communicator* Job::statistics() {
  if (gradients_) return gradients_.get();
  if (control_ && !statistics_) statistics_ = control_->split(0);
  return statistics_.get();
}

int Job::run(const char* program, const std::function<int()>& body) {
  program_ = program;
  try {
    agree([&] { wait_for_debugger(program, options_.wait_debugger, *rendezvous_, options_.comm); });
    return body();
  } catch (const ReportedError&) {
    throw;
  } catch (const std::exception&) {
    fail_together(failure_of(std::current_exception()));
  }
}

void Job::tell(const std::string& what) noexcept {
  if (is_alone()) return;
  const std::string told = fmt::format("rank {}: {}", info().rank, what);
  if (gradients_) gradients_->abort(told);
  if (statistics_) statistics_->abort(told);
  control_->abort(told);
}

void Job::fail_together(const Failure& failure) {
  const auto& [code, what] = failure;
  if (is_alone()) throw Error(code, what);
  // The flags are those of all threads.
  const std::string told =
      in_threads() && code == ExitCode::usage ? what : fmt::format("rank {}: {}", info().rank, what);
  if (endings_ != nullptr) {
    endings_->add_failure(code, told);
    tell(what);
    throw ReportedError(code, told);
  }
  const bool is_cause = code != ExitCode::peer;
  const bool speaks_at_once = !by_mpirun() || (is_cause && is_first());
  if (speaks_at_once) print_error(program_, told);
  tell(what);
  if (!speaks_at_once) {
    std::this_thread::sleep_for(is_cause ? kOtherCauses : is_first() ? kRankZero : kOthers);
    print_error(program_, told);
  }
  throw ReportedError(code, told);
}

void Job::agree(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    if (is_alone()) throw;
    if (endings_ != nullptr) endings_->add_failure(error.code(), error.what());
    if (endings_ == nullptr && (is_first() || !by_mpirun())) print_error(program_, error.what());
    control_->barrier();  // nobody leaves before that is out
    throw ReportedError(error.code(), error.what());
  }
}

void Job::first_before_others(const std::function<void()>& body) {
  if (is_alone()) return body();
  with_patience(*rendezvous_, options_.comm, [&](Communicator& patient) {
    if (is_first()) body();
    patient.barrier();
    if (!is_first()) body();
  });
}

std::shared_ptr<void> Job::share(std::shared_ptr<void> mine) {
  auto* const met = dynamic_cast<ThreadRendezvous*>(rendezvous_.get());
  check(met != nullptr, "ranks share memory that are threads of one process, found {}", rendezvous_->note());
  return met->share(std::move(mine));
}

void Job::connect(const Device& device) {
  const bool is_gpu = device.kind() == DeviceKind::cuda;
  check(is_gpu || options_.comm != "nccl", "--comm nccl: found --device {}, expected a GPU", device.name());
  devices_ = {device.name()};
  if (is_alone()) return;
  check(!is_gpu || options_.comm == "auto" || options_.comm == "nccl",
        "--comm {}: carries what lies in the CPU's memory, found --device {}; expected nccl", options_.comm,
        device.name());
  check_same({{"--device", is_gpu ? "cuda" : "cpu"}});
  devices_ = rendezvous_->all_gather(device.name());
  if (!is_gpu) return;
  agree([&] { check_gpu_sharing(*rendezvous_, device.uuid(), options_.allow_shared_gpu); });
  const std::vector<std::string> gpus = rendezvous_->all_gather(device.uuid());
  // Ranks that have a GPU each are better off with NCCL knowing that they are of one host.
  if (std::count(gpus.begin(), gpus.end(), device.uuid()) > 1) let_nccl_share_gpus(info().rank);
  gradients_ =
      make_nccl_communicator(control_->split(0), device,
                             {.timeout_seconds = options_.comm_timeout, .check_always = options_.debug_comm});
}

void Job::check_same(const std::vector<Claim>& mine) {
  if (control_) agree([&] { check_same_claims(*control_, mine); });
}

std::string Job::describe() const {
  if (is_alone()) return "one process";
  return fmt::format("{} on {} {}, {}; met by {}", info().world, info().nodes,
                     info().nodes == 1 ? "host" : "hosts", gradients()->name(), rendezvous_->note());
}

void Job::finish() {
  if (gradients_) gradients_->finish();
  if (statistics_) statistics_->finish();
  if (control_) control_->finish();
}

void in_turn(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error&) {
    bool is_other = false;
    try {
      const std::optional<Launch> launch = launch_from(environment_variables());
      is_other = launch && launch->by_mpi && launch->rank > 0;
    } catch (const Error&) {  // who this is, is then what went wrong
    }
    if (is_other) std::this_thread::sleep_for(kOthers);
    throw;
  }
}

}  // namespace convoy
