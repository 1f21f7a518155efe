#include "convoy/apps/ranks/job.h"

#include <sched.h>

#include <algorithm>
#include <exception>

#include "convoy/apps/common/signals.h"
#include "convoy/apps/flags/flag_names.h"
#include "convoy/apps/ranks/cluster.h"
#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/bootstrap/thread_rendezvous.h"
#include "convoy/comm/core/collective.h"
#include "convoy/comm/nccl/nccl_communicator.h"
#include "convoy/comm/transport/mpi/mpi_communicator.h"
#include "convoy/comm/transport/shm/shm_communicator.h"
#include "convoy/comm/transport/thread/thread_communicator.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/printable.h"
#include "convoy/version.h"

namespace convoy {
namespace {

constexpr double kVerdictSeconds = 1;  // for the first cause of the failure of a peer

/// Adds the cause of the failure of a peer to an error message, except for what the message tells already.
void add_cause(std::string& what, const std::string& cause) {
  const std::string core = cause.substr(0, cause.rfind(" ("));  // without where and when
  if (cause.empty() || what.find(cause) != std::string::npos) return;
  const std::size_t colon = core.find(": ");  // behind the rank
  const bool is_known = what.ends_with(colon == std::string::npos ? core : core.substr(colon + 2));
  what += is_known ? cause.substr(core.size()) : "; " + cause;
}

/// Returns whether the exception that is being handled is a cause, although its exit code is that of a failed peer.
bool is_corruption() try { throw; } catch (const dist::CorruptionError&) {
  return true;
} catch (...) {
  return false;
}

/// Returns a hash of the CPU affinity mask of this process.
std::size_t affinity_hash() {
  cpu_set_t mask;
  CPU_ZERO(&mask);
  sched_getaffinity(0, sizeof mask, &mask);
  return std::hash<std::string_view>()({reinterpret_cast<const char*>(&mask), sizeof mask});
}

}  // namespace

std::string cpu_communicator_kind(const std::string& comm, const dist::RankInfo& info) {
  if (comm != "auto" && comm != "nccl") return comm;
  if (info.source == "threads") return "thread";
  if (info.nodes == 1) return "shm";
  if (info.nodes < info.world_size && cluster().communicators.contains("hierarchical")) return "hierarchical";
  return info.source == "mpi" ? "mpi" : "tcp";
}

dist::AllReduceOptions all_reduce_of(const JobOptions& options, int hosts) {
  dist::AllReduceOptions all_reduce = options.link;
  const auto& names = dist::kAllReduceNames;
  const auto at = std::find(names.begin(), names.end(), options.all_reduce) - names.begin();
  all_reduce.algorithm = static_cast<dist::AllReduce>(at);
  all_reduce.hosts = hosts;
  return all_reduce;
}

std::unique_ptr<dist::Communicator> make_cpu_communicator(const std::string& kind,
                                                          dist::Rendezvous& rendezvous,
                                                          const dist::CommOptions& options) {
  const dist::RankInfo& info = rendezvous.info();
  if (kind == "mpi") return dist::make_mpi_communicator(rendezvous, options);
  if (kind == "thread") return dist::make_thread_communicator(rendezvous, options);
  if (const auto between_hosts = cluster().communicators.find(kind);
      between_hosts != cluster().communicators.end())
    return between_hosts->second(rendezvous, options);
  check(info.nodes == 1, "--comm shm: found ranks on {} hosts, expected one host; use mpi or tcp",
        info.nodes);
  return dist::make_shm_communicator(info.rank, info.world_size,
                                     [&](const std::string& text) { return rendezvous.all_gather(text); },
                                     {.comm = options});
}

void add_job_flags(CommandLine& line, JobOptions& options) {
  line.group("Distributed");
  line.add("rendezvous", &options.rendezvous,
           "Rendezvous: auto (from the launcher), mpi, env (RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT), "
           "tcp://HOST:PORT, file:///PATH",
           {.value = "PLACE", .advanced = true});
  std::vector<std::string> backends = {"auto", "nccl", "mpi", "shm", "thread"};
  if (cluster().communicators.contains("tcp")) backends.insert(backends.end() - 1, "tcp");
  line.add("comm", &options.comm, "Communication backend",
           {.value = "NAME", .choices = backends, .advanced = true});
  line.add("comm-timeout", &options.comm_timeout,
           "Timeout of the rendezvous and of each collective (seconds)",
           {.value = "SECONDS", .minimum = 0.1, .maximum = 1e6, .advanced = true});
  line.add(
      "comm-warning", &options.comm_warning,
      "Seconds without progress of any rank, after which a warning names the rank that holds up the others",
      {.value = "SECONDS", .minimum = 0.1, .maximum = 1e6, .advanced = true});
  line.add("io-timeout", &options.io_timeout,
           "Timeout of a rank that reads or writes files, without bytes moved; 0: none (seconds)",
           {.value = "SECONDS", .minimum = 0, .maximum = 1e6, .advanced = true});
  line.add("nccl-ctas", &options.nccl_ctas,
           "Maximum number of thread blocks of a collective of NCCL; 0: NCCL's choice",
           {.value = "N", .minimum = 0, .maximum = 64, .advanced = true});
  line.add("allreduce", &options.all_reduce,
           "Algorithm of collectives by messages: --comm mpi or tcp, or between hosts",
           {.value = "NAME",
            .choices = {dist::kAllReduceNames.begin(), dist::kAllReduceNames.end()},
            .advanced = true});
  line.add("link-latency", &options.link.latency_us,
           "Time of a small message, for --allreduce auto (microseconds)",
           {.value = "US", .minimum = 0, .maximum = 1e6, .advanced = true});
  line.add("link-bandwidth", &options.link.gb_per_s,
           "Rate of large messages between two ranks, for --allreduce auto (GB/s)",
           {.value = "RATE", .minimum = 1e-3, .maximum = 1e4, .advanced = true});
  line.group("Debugging");
  line.add("debug-comm", &options.debug_comm,
           "Collective consistency check and comparison of sums at every step on GPUs; always on for CPUs",
           {.advanced = true});
  line.group("Distributed");
  line.add("allow-shared-gpu", &options.allow_shared_gpu,
           "Several ranks on one GPU (for testing only; no performance benefit)", {.advanced = true});
}

namespace {

/// Runs the rendezvous of a process. Warns before it of variables with which the ranks may wait for each other in
/// vain.
std::unique_ptr<dist::Rendezvous> rendezvous_of(const JobOptions& options) {
  if (options.rendezvous == "auto")
    if (const auto warning = dist::contradiction_with_mpirun(dist::environment_variables()))
      fmt::print(stderr, "warning: {}\n", *warning);
  return dist::Rendezvous::init({.init_method = options.rendezvous,
                                 .timeout_seconds = options.comm_timeout,
                                 .by_store = cluster().by_store});
}

}  // namespace

Job::Job(const JobOptions& options) : Job(options, rendezvous_of(options)) {}

Job::Job(const JobOptions& options, std::unique_ptr<dist::Rendezvous> rendezvous,
         std::function<void(ExitCode)> on_failure)
    : options_(options), on_failure_(std::move(on_failure)) {
  join(std::move(rendezvous));
}

void Job::join(std::unique_ptr<dist::Rendezvous> rendezvous) {
  plane_ = cluster().connect(
      *rendezvous, {.timeout_seconds = options_.comm_timeout,
                    .io_timeout_seconds = options_.io_timeout,
                    .warn_after_seconds = options_.comm_warning,
                    .stop_code = [] { return stop_code_of(StopSignals::received()); },
                    .on_warning =
                        [rank = rendezvous->info().rank](const std::string& text) {
                          fmt::print(stderr, "warning: [rank {}] {}\n", rank,
                                     without_control_characters(text));
                        },
                    .on_verdict = [this](const std::string& reason) { abort_communicators(reason); }});
  rendezvous_ = std::move(rendezvous);  // after plane_, which referred to the one before
  if (is_alone()) return;
  const std::string local = fmt::format("{} {}", info().node, affinity_hash());
  const std::string sums = fmt::format(" --allreduce {} --link-latency {} --link-bandwidth {}",
                                       options_.all_reduce, options_.link.latency_us, options_.link.gb_per_s);
  ranks_on_my_cores_ = 0;
  for (const std::string& text : rendezvous_->all_gather(local + sums)) {
    ranks_on_my_cores_ += text == local + sums ? 1 : 0;
    check(text.ends_with(sums), "the ranks have different flags: found{}, and on another rank{}", sums,
          text.substr(text.find(" --")));
  }
  try {
    adopt(control_, make_cpu_communicator(cpu_communicator_kind(options_.comm, info()), *rendezvous_,
                                          comm_options("control")));
  } catch (const PeerError& error) {  // ranks that wait for the same one are no cause
    std::string what = error.what();
    add_cause(what, plane_->verdict(kVerdictSeconds));
    throw PeerError(what);
  }
}

Job::~Job() {
  plane_->leave();  // its thread uses the communicators
}

dist::CommOptions Job::comm_options(const char* name) const {
  return {.timeout_seconds = options_.comm_timeout,
          .all_reduce = all_reduce_of(options_, info().nodes),
          .deadline_floor = plane_->deadline_floor(),
          .monitor = plane_->monitor(name)};
}

void Job::adopt(std::unique_ptr<dist::Communicator>& place,
                std::unique_ptr<dist::Communicator> communicator) {
  const std::lock_guard lock(mutex_);
  place = std::move(communicator);
  if (!abort_reason_.empty()) place->abort(abort_reason_);
}

void Job::abort_communicators(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  if (abort_reason_.empty()) abort_reason_ = reason;
  for (auto* const communicator : communicators())
    if (*communicator) (*communicator)->abort(reason);
}

bool Job::by_messages() const {
  const std::string name = is_alone() ? "" : gradients()->name();  // "shm+tcp": across hosts
  return name.ends_with("mpi") || name.ends_with("tcp");
}

dist::Communicator* Job::gradients() const { return gradients_ ? gradients_.get() : control_.get(); }

dist::Communicator* Job::part_of(dist::Communicator* whole, std::unique_ptr<dist::Communicator>& place,
                                 int color, const char* name) {
  if (whole != nullptr && !place) {
    adopt(place, whole->split(color));
    place->set_monitor(plane_->monitor(name));
  }
  return place.get();
}

dist::Communicator* Job::statistics() {
  return gradients_ ? gradients_.get() : part_of(control(), statistics_, 0, "statistics");
}

dist::Communicator* Job::host() { return part_of(control(), host_, info().node, "host"); }

std::string Job::uneven_hosts() const {
  const auto [fewest, most] = std::ranges::minmax(all(), {}, &dist::RankInfo::local_world_size);
  if (info().nodes == 1 || (fewest.local_world_size == most.local_world_size && fewest.local_world_size > 1))
    return "";
  return fmt::format("found hosts with {} to {} ranks ({}, {}), expected the same number, 2 or more, on each",
                     fewest.local_world_size, most.local_world_size, fewest.host, most.host);
}

HostGroups Job::host_groups() {
  if (info().nodes == 1 || !uneven_hosts().empty()) return {};
  return {
      .gradients = gradients_ ? part_of(gradients(), host_gradients_, info().node, "host gradients") : host(),
      .control = host(),
      .replicas = part_of(gradients(), replicas_, info().local_rank, "replicas"),
      .is_first = info().node == 0};
}

void Job::report(const Failure& failure) const {
  print_error(program_, failure.what, info().rank);
  if (on_failure_) on_failure_(failure.code);
}

void Job::report_and_abort() {
  Failure failure = to_failure(std::current_exception());
  const bool is_own = failure.code != ExitCode::peer;
  if (is_own && !is_alone()) report(failure);  // at once: before the lines of its consequences
  plane_->fail(failure.what, !is_own && !is_corruption());
  if (is_alone()) throw;
  if (is_own) abort_communicators(fmt::format("rank {}: {}", info().rank, failure.what));
  const std::string verdict = plane_->verdict(kVerdictSeconds);
  if (!is_own) {
    add_cause(failure.what, verdict);
    report(failure);
    abort_communicators(fmt::format("rank {}: {}", info().rank, failure.what));
  }
  throw ReportedError(failure.code, failure.what);
}

bool Job::can_regroup() const {
  return cluster().may_regroup() && !in_threads() && options_.rendezvous == "auto";
}

void Job::abandon_group() {
  Failure failure = to_failure(std::current_exception());
  plane_->fail(failure.what, !is_corruption());
  add_cause(failure.what, plane_->verdict(kVerdictSeconds));
  fmt::print(stderr, "warning: [rank {}] {}; waiting for a new group\n", info().rank,
             without_control_characters(failure.what));
  abort_communicators(fmt::format("rank {}: {}", info().rank, failure.what));
}

void Job::regroup(std::int64_t step, const DeviceContext& device) {
  {
    const std::lock_guard lock(mutex_);
    for (auto* const communicator : communicators()) communicator->reset();
  }
  plane_->leave();
  const auto variables = cluster().request_group(step);
  if (!variables) throw ReportedError(ExitCode::peer, "there is no new group");
  abort_reason_.clear();
  const double seconds = std::stod(variables->at(kGroupSeconds));
  try {
    join(dist::Rendezvous::init({.init_method = "env",
                                 .timeout_seconds = std::min(options_.comm_timeout, seconds),
                                 .variables = *variables,
                                 .by_store = cluster().by_store}));
    connect(device);
  } catch (const PeerError& error) {  // another rank has failed meanwhile, or a program uses the port
    fmt::print(stderr, "warning: [rank {}] {}; waiting for another group\n", info().rank,
               without_control_characters(error.what()));
    abort_communicators(error.what());
    regroup(step, device);
  }
}

void Job::run_consistent_check(const std::function<void()>& body) {
  try {
    body();
  } catch (const UsageError& error) {
    if (is_alone()) throw;
    report({error.code(), message_with_flag(error)});
    control_->barrier();  // a rank that exits during the check would be a lost peer to the others
    throw ReportedError(error.code(), error.what());
  }
}

void Job::run_on_rank_zero_first(const std::function<void()>& body) {
  const dist::PhaseScope phase(plane_.get(), dist::Phase::download);
  if (is_alone()) return body();
  if (is_first()) body();
  control_->barrier();
  if (!is_first()) body();
}

std::shared_ptr<void> Job::share(std::shared_ptr<void> local) {
  auto* const threads = dynamic_cast<dist::ThreadRendezvous*>(rendezvous_.get());
  check(threads != nullptr, "sharing an object: found ranks of {}, expected threads of one process",
        rendezvous_->note());
  return threads->share(std::move(local));
}

void Job::connect(const DeviceContext& device) {
  const bool is_gpu = device.kind() == DeviceKind::cuda;
  verify_consistency({{"version", kVersion}, {"--device", is_gpu ? "cuda" : "cpu"}});
  run_consistent_check([&] {
    check(is_gpu || options_.comm != "nccl", "--comm nccl: found --device {}, expected a GPU", device.name());
    check(is_alone() || !is_gpu || options_.comm == "auto" || options_.comm == "nccl",
          "--comm {}: supports only the CPU, found --device {}; expected nccl", options_.comm, device.name());
    const bool may_send = options_.comm == "auto" || options_.comm == "mpi" || options_.comm == "tcp";
    check(options_.all_reduce == "auto" || (!is_gpu && may_send),
          "--allreduce {}: found --comm {} and --device {}, expected mpi, tcp or auto, and the CPU",
          options_.all_reduce, options_.comm, device.name());
  });
  if (options_.all_reduce != "auto" && !by_messages() && is_first())  // the job may have had several hosts
    fmt::print(stderr, "warning: --allreduce {} has no effect: the ranks send no messages ({})\n",
               options_.all_reduce, is_alone() ? "one rank" : gradients()->name());
  devices_ = {device.name()};
  device.memory().set_observer(dist::JobControl::kRecordedBytes, plane_->allocation_recorder());
  if (is_alone()) return;
  devices_ = rendezvous_->all_gather(device.name());
  if (!is_gpu) return;
  run_consistent_check(
      [&] { dist::check_gpu_sharing(*rendezvous_, device.uuid(), options_.allow_shared_gpu); });
  const std::vector<std::string> gpus = rendezvous_->all_gather(device.uuid());
  // Ranks with a GPU each do better if NCCL knows that they share a host.
  if (std::count(gpus.begin(), gpus.end(), device.uuid()) > 1) dist::let_nccl_share_gpus(info().rank);
  dist::CommOptions options = comm_options("gradients");
  options.check_always = options_.debug_comm;
  options.nccl_ctas = static_cast<int>(options_.nccl_ctas);
  adopt(gradients_, dist::make_nccl_communicator(control_->split(0), device, options));
}

void Job::verify_consistency(const std::vector<dist::ConsistencyEntry>& local) {
  if (control_) run_consistent_check([&] { dist::verify_consistency_entries(*control_, local); });
}

std::string Job::describe() const {
  if (is_alone()) return "one process";
  return fmt::format("{} on {} {}, {}; {}rendezvous: {}", info().world_size, info().nodes,
                     info().nodes == 1 ? "host" : "hosts", gradients()->name(),
                     by_messages() ? fmt::format("all-reduce: {}; ", options_.all_reduce) : "",
                     rendezvous_->note());
}

void Job::finish() {
  for (auto* const communicator : communicators())
    if (*communicator) (*communicator)->finish();
  plane_->leave();
}

}  // namespace convoy
