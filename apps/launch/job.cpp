#include "apps/launch/job.h"

#include <sched.h>

#include <algorithm>
#include <chrono>
#include <exception>
#include <optional>
#include <thread>

#include "apps/launch/debugger.h"
#include "apps/launch/failure_coordinator.h"
#include "comm/bootstrap/environment.h"
#include "comm/bootstrap/gpu_sharing.h"
#include "comm/bootstrap/thread_rendezvous.h"
#include "comm/nccl/nccl_communicator.h"
#include "comm/transport/gloo/gloo_communicator.h"
#include "comm/transport/hierarchical/hierarchical_communicator.h"
#include "comm/transport/mpi/mpi_communicator.h"
#include "comm/transport/shm/shm_communicator.h"
#include "comm/transport/thread/thread_communicator.h"
#include "kernels/base/check.h"

namespace convoy {
namespace {

// mpirun ends all ranks when the first process exits with an error, and returns the exit code of that
// process. Ranks therefore delay their reports and exits so that the most informative one is first: at once
// rank 0 if it knows a cause, which may be the same on all ranks; then other ranks that know a cause; then
// rank 0 if it only knows that a peer was lost; then the others. Without mpirun each rank has its own
// terminal or log and reports at once.
constexpr std::chrono::milliseconds kCauseDelay{1500};
constexpr std::chrono::milliseconds kRankZeroDelay{4000};
constexpr std::chrono::milliseconds kOtherRanksDelay{10000};

/// Returns the CPU affinity mask of this process in hexadecimal, lowest cores first: "ff".
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
  if (info.nodes < info.world_size) return "hierarchical";
  return info.source == "mpi" ? "mpi" : "gloo";
}

std::unique_ptr<Communicator> make_cpu_communicator(const std::string& kind, Rendezvous& rendezvous,
                                                    const CommOptions& options) {
  const RankInfo& info = rendezvous.info();
  if (kind == "mpi") return make_mpi_communicator(rendezvous, options);
  if (kind == "thread") return make_thread_communicator(rendezvous, options);
  if (kind == "gloo") return make_gloo_communicator(rendezvous, options);
  if (kind == "hierarchical") return make_hierarchical_communicator(rendezvous, {.comm = options});
  check(info.nodes == 1, "--comm shm: found ranks on {} hosts, expected one host; use mpi or gloo",
        info.nodes);
  return make_shm_communicator(info.rank, info.world_size,
                               [&](const std::string& text) { return rendezvous.all_gather(text); },
                               {.comm = options});
}

void with_long_timeout(Rendezvous& rendezvous, const std::string& comm,
                       const std::function<void(Communicator&)>& body) {
  constexpr double kTimeoutSeconds = 86400;  // a dead rank is detected earlier
  const RankInfo& info = rendezvous.info();
  const auto communicator = make_cpu_communicator(cpu_communicator_kind(comm, info), rendezvous,
                                                  {.timeout_seconds = kTimeoutSeconds});
  try {
    body(*communicator);
    communicator->finish();
  } catch (const std::exception& error) {
    // Gives the peers the cause, not only the loss of this rank.
    communicator->abort(fmt::format("rank {}: {}", info.rank, error.what()));
    throw;
  }
}

void add_job_flags(CommandLine& line, JobOptions& options) {
  line.group("Distributed");
  line.add("rendezvous", &options.rendezvous,
           "Rendezvous: auto (from the launcher), mpi, env (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), "
           "tcp://HOST:PORT, file:///PATH",
           {.value = "PLACE", .advanced = true});
  line.add("comm", &options.comm, "Communication backend",
           {.value = "NAME", .choices = {"auto", "nccl", "mpi", "shm", "gloo", "thread"}, .advanced = true});
  line.add("comm-timeout", &options.comm_timeout,
           "Timeout of the rendezvous and of each collective (seconds)",
           {.value = "SECONDS", .minimum = 0.1, .maximum = 1e6, .advanced = true});
  line.group("Debugging");
  line.add("debug-comm", &options.debug_comm,
           "Collective consistency check at every step on GPUs, not only the first; always on for CPUs",
           {.advanced = true});
  line.group("Distributed");
  line.add("allow-shared-gpu", &options.allow_shared_gpu,
           "Several ranks on one GPU (for testing only; no performance benefit)", {.advanced = true});
  line.group("Debugging");
  line.add("wait-debugger", &options.wait_debugger, "Rank that waits for a debugger before it starts",
           {.value = "RANK", .default_text = "none", .advanced = true, .in_config = false});
  line.group("Distributed");
}

Job::Job(const JobOptions& options)
    : options_(options),
      rendezvous_(Rendezvous::init({.where = options.rendezvous, .timeout_seconds = options.comm_timeout})) {
  open();
}

Job::Job(const JobOptions& options, std::unique_ptr<Rendezvous> rendezvous, FailureCoordinator& coordinator)
    : options_(options), rendezvous_(std::move(rendezvous)), coordinator_(&coordinator) {
  open();
}

void Job::open() {
  if (is_alone()) return;
  const std::string local = fmt::format("{} {}", info().node, affinity_text());
  ranks_on_my_cores_ = 0;
  for (const std::string& text : rendezvous_->all_gather(local)) ranks_on_my_cores_ += text == local ? 1 : 0;
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
    run_consistent_check(
        [&] { wait_for_debugger(program, options_.wait_debugger, *rendezvous_, options_.comm); });
    return body();
  } catch (const ReportedError&) {
    throw;
  } catch (const std::exception&) {
    report_and_abort(to_failure(std::current_exception()));
  }
}

void Job::abort_peers(const std::string& reason) noexcept {
  if (is_alone()) return;
  const std::string message = fmt::format("rank {}: {}", info().rank, reason);
  if (gradients_) gradients_->abort(message);
  if (statistics_) statistics_->abort(message);
  control_->abort(message);
}

void Job::report_and_abort(const Failure& failure) {
  const auto& [code, what] = failure;
  if (is_alone()) throw Error(code, what);
  // All threads have the same flags, so a usage error needs no rank.
  const std::string message =
      in_threads() && code == ExitCode::usage ? what : fmt::format("rank {}: {}", info().rank, what);
  if (coordinator_ != nullptr) {
    coordinator_->report_failure(code, message);
    abort_peers(what);
    throw ReportedError(code, message);
  }
  const bool is_cause = code != ExitCode::peer;
  const bool reports_at_once = !by_mpirun() || (is_cause && is_first());
  if (reports_at_once) print_error(program_, message);
  abort_peers(what);
  if (!reports_at_once) {
    std::this_thread::sleep_for(is_cause ? kCauseDelay : is_first() ? kRankZeroDelay : kOtherRanksDelay);
    print_error(program_, message);
  }
  throw ReportedError(code, message);
}

void Job::run_consistent_check(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    if (is_alone()) throw;
    if (coordinator_ != nullptr) coordinator_->report_failure(error.code(), error.what());
    if (coordinator_ == nullptr && (is_first() || !by_mpirun())) print_error(program_, error.what());
    control_->barrier();  // no rank exits before the error is printed
    throw ReportedError(error.code(), error.what());
  }
}

void Job::run_on_rank_zero_first(const std::function<void()>& body) {
  if (is_alone()) return body();
  with_long_timeout(*rendezvous_, options_.comm, [&](Communicator& communicator) {
    if (is_first()) body();
    communicator.barrier();
    if (!is_first()) body();
  });
}

std::shared_ptr<void> Job::share(std::shared_ptr<void> local) {
  auto* const threads = dynamic_cast<ThreadRendezvous*>(rendezvous_.get());
  check(threads != nullptr, "sharing an object: found ranks of {}, expected threads of one process",
        rendezvous_->note());
  return threads->share(std::move(local));
}

void Job::connect(const Device& device) {
  const bool is_gpu = device.kind() == DeviceKind::cuda;
  check(is_gpu || options_.comm != "nccl", "--comm nccl: found --device {}, expected a GPU", device.name());
  devices_ = {device.name()};
  if (is_alone()) return;
  check(!is_gpu || options_.comm == "auto" || options_.comm == "nccl",
        "--comm {}: supports only the CPU, found --device {}; expected nccl", options_.comm, device.name());
  verify_consistency({{"--device", is_gpu ? "cuda" : "cpu"}});
  devices_ = rendezvous_->all_gather(device.name());
  if (!is_gpu) return;
  run_consistent_check([&] { check_gpu_sharing(*rendezvous_, device.uuid(), options_.allow_shared_gpu); });
  const std::vector<std::string> gpus = rendezvous_->all_gather(device.uuid());
  // Ranks with a GPU each do better if NCCL knows that they share a host.
  if (std::count(gpus.begin(), gpus.end(), device.uuid()) > 1) let_nccl_share_gpus(info().rank);
  gradients_ =
      make_nccl_communicator(control_->split(0), device,
                             {.timeout_seconds = options_.comm_timeout, .check_always = options_.debug_comm});
}

void Job::verify_consistency(const std::vector<ConsistencyEntry>& local) {
  if (control_) run_consistent_check([&] { verify_consistency_entries(*control_, local); });
}

std::string Job::describe() const {
  if (is_alone()) return "one process";
  return fmt::format("{} on {} {}, {}; rendezvous: {}", info().world_size, info().nodes,
                     info().nodes == 1 ? "host" : "hosts", gradients()->name(), rendezvous_->note());
}

void Job::finish() {
  if (gradients_) gradients_->finish();
  if (statistics_) statistics_->finish();
  if (control_) control_->finish();
}

void report_errors_in_rank_order(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error&) {
    bool is_other_rank = false;
    try {
      const std::optional<Launch> launch = launch_from(environment_variables());
      is_other_rank = launch && launch->by_mpi && launch->rank > 0;
    } catch (const Error&) {  // the launch environment itself is invalid, and the rank unknown
    }
    if (is_other_rank) std::this_thread::sleep_for(kOtherRanksDelay);
    throw;
  }
}

}  // namespace convoy
