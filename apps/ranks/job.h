// The ranks of a program: their rendezvous, their communicators and their failure handling.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "convoy/apps/flags/command_line.h"
#include "convoy/apps/flags/run_main.h"
#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/job_control.h"
#include "convoy/comm/core/waits.h"
#include "convoy/comm/parallel/consistency.h"

namespace convoy {

struct JobOptions {
  /// Ranks of this process, a thread each. Default: one.
  std::optional<std::int64_t> devices;
  std::string rendezvous = "auto";
  std::string comm = "auto";
  double comm_timeout = dist::row_of(dist::Wait::collective).seconds;
  double io_timeout = dist::row_of(dist::Wait::storage).seconds;  // 0: none
  double comm_warning = 10;                                       // seconds
  bool debug_comm = false;
  bool allow_shared_gpu = false;
  std::int64_t nccl_ctas = 0;  // 0: NCCL's choice
  std::string all_reduce = "auto";
  dist::AllReduceOptions link = {};  // its speed, for "auto"
};

/// Adds --rendezvous, --comm, --comm-timeout, --comm-warning, --io-timeout, --nccl-ctas, --allreduce,
/// --link-latency, --link-bandwidth, --debug-comm and --allow-shared-gpu.
void add_job_flags(CommandLine& line, JobOptions& options);

/// Returns the kind of CPU communicator for the value `comm` of --comm: "thread", "shm", "mpi", "tcp" or
/// "hierarchical". For "auto" and "nccl": shared memory on one host, hierarchical if some hosts have several
/// ranks, else the backend of the rendezvous.
std::string cpu_communicator_kind(const std::string& comm, const dist::RankInfo& info);
/// Returns the options of collectives by messages of a job on `hosts` hosts.
dist::AllReduceOptions all_reduce_of(const JobOptions& options, int hosts);
/// Creates a CPU communicator of this kind. Collective call. Throws UsageError for "shm" if the ranks are on
/// several hosts.
std::unique_ptr<dist::Communicator> make_cpu_communicator(const std::string& kind,
                                                          dist::Rendezvous& rendezvous,
                                                          const dist::CommOptions& options);

/// The communicators of a rank by host, for --zero-group host. All null if the hosts are no groups.
struct HostGroups {
  dist::Communicator* gradients = nullptr;  // of the ranks of this host, on the device
  dist::Communicator* control = nullptr;    // of the same ranks, for host memory
  dist::Communicator* replicas = nullptr;   // of the ranks with this rank's place on each host, on the device
  bool is_first = true;                     // rank 0 is on this host
};

/// The distributed context of one rank: its rendezvous and communicators. A program without a launcher is a
/// job with one rank and no communicators. One thread at a time may use a job.
class Job {
 public:
  /// Runs the rendezvous with the other ranks. Blocks until all ranks are present. From then on, a failure of
  /// one rank ends all of them (report_and_abort()). Throws UsageError for contradictory flags and PeerError
  /// if a rank is missing at the timeout.
  explicit Job(const JobOptions& options);
  /// Creates the job of a rank from its `rendezvous`. If this rank fails, the job calls `on_failure`, unless
  /// it is empty, after the report and before the peers learn of the failure.
  Job(const JobOptions& options, std::unique_ptr<dist::Rendezvous> rendezvous,
      std::function<void(ExitCode)> on_failure = {});
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const dist::RankInfo& info() const { return rendezvous_->info(); }
  const std::vector<dist::RankInfo>& all() const { return rendezvous_->all(); }
  bool is_alone() const { return info().world_size == 1; }
  /// Returns the rendezvous, for exchanges that need no communicator.
  dist::Rendezvous& rendezvous() { return *rendezvous_; }
  /// Returns whether this is rank 0, the rank that writes files and prints.
  bool is_first() const { return info().rank == 0; }
  bool by_mpirun() const { return info().source == "mpi"; }
  bool in_threads() const { return info().source == "threads"; }
  /// Returns the number of ranks of this host, including this one, that have the same CPU affinity mask.
  int ranks_on_my_cores() const { return ranks_on_my_cores_; }

  /// Begins the work of `program`, whose name errors have.
  void start(const char* program) { program_ = program; }

  /// Prints the exception that is being handled with this rank's number, aborts all communicators with it, so
  /// that peers stop waiting for this rank, and throws ReportedError. A rank without peers rethrows the
  /// exception. LocalRanks::run() calls it for exceptions that reach it; a handler of its function calls it
  /// earlier if unwinding could block peers.
  [[noreturn]] void report_and_abort();

  /// Returns whether the rank can leave a group that has lost a rank, and continue in a new one: it is a
  /// process that convoy-launch has started with --min-ranks.
  bool can_regroup() const;
  /// Aborts all communicators because of the PeerError that is being handled, and prints it as a warning. The
  /// communicators may still be used by objects that exist, which must be destroyed before regroup().
  void abandon_group();
  /// Leaves the group and joins the next one, with new communicators and a new control plane. `step` is the
  /// number of training steps that this rank has completed; rank 0 of the new group has the maximum. Blocks
  /// until the ranks of a group have found each other. Throws ReportedError if there will be none.
  void regroup(std::int64_t step, const DeviceContext& device);

  /// Creates the gradient communicator for this device. Collective call, once per job. Throws UsageError on
  /// all ranks if their devices differ in kind, or if two ranks have the same GPU without --allow-shared-gpu.
  void connect(const DeviceContext& device);
  /// Returns the communicator for gradients; null if there is one rank.
  dist::Communicator* gradients() const;
  /// Returns the communicator for small data in CPU memory; null if there is one rank. If the ranks compute
  /// on the CPU, it is the same as gradients().
  dist::Communicator* control() const { return control_.get(); }
  /// Returns the communicator for batch-norm statistics, which are exchanged while gradients are in flight:
  /// gradients() on GPUs, on the CPU a separate one that the first call creates. The first call is
  /// collective. Null if there is one rank.
  dist::Communicator* statistics();
  /// Returns the communicator of the ranks of this host, in their order, for data in CPU memory. The first
  /// call is collective among all ranks. Null if there is one rank.
  dist::Communicator* host();

  /// Returns "" if all hosts have the same number of ranks, at least two, or if there is one host. Otherwise
  /// returns what was found and expected, for an error or a warning.
  std::string uneven_hosts() const;
  /// Returns the communicators by host, whose ranks are in the order of the job. The first call is collective among
  /// all ranks. They are null if there is one host or uneven_hosts() is not empty.
  HostGroups host_groups();

  /// Returns what the ranks tell each other besides their collectives: the control plane, in a build that has
  /// it.
  dist::JobControl& control_plane() { return *plane_; }

  /// Returns the device names by rank, such as "cuda:1". Valid after connect().
  const std::vector<std::string>& devices() const { return devices_; }

  /// Calls `body` on rank 0 and then on the other ranks, which find what rank 0 has downloaded. The others
  /// wait without a time limit. Collective call.
  void run_on_rank_zero_first(const std::function<void()>& body);

  /// Calls `make` on the first rank of this process and returns its result on all ranks of the process, which
  /// share it: for large immutable data. Collective call among the ranks of the process.
  template <class T>
  std::shared_ptr<const T> make_once(const std::function<T()>& make) {
    if (!in_threads()) return std::make_shared<const T>(make());
    return std::static_pointer_cast<T>(share(is_first() ? std::make_shared<T>(make()) : nullptr));
  }

  /// Throws UsageError on all ranks if an entry differs between ranks. Collective call.
  void verify_consistency(const std::vector<dist::ConsistencyEntry>& local);
  /// Calls `body`, which throws the same UsageError on all ranks or on none. Converts it into a printed
  /// ReportedError once all ranks have it. Collective call.
  void run_consistent_check(const std::function<void()>& body);
  /// Returns a description such as "2 on 1 host, shm; rendezvous: OMPI_COMM_WORLD_*, MPI".
  std::string describe() const;

  /// Finishes all communicators. Collective call; nothing may be communicated after it.
  void finish();

 private:
  /// Joins the group of the rendezvous: sets up the control plane and the CPU communicator.
  void join(std::unique_ptr<dist::Rendezvous> rendezvous);
  /// Prints a failure of this rank and calls `on_failure_`.
  void report(const Failure& failure) const;
  /// Stores a new communicator of this job.
  void adopt(std::unique_ptr<dist::Communicator>& place, std::unique_ptr<dist::Communicator> communicator);
  /// Returns the communicator at `place`, which is that of the ranks of `whole` with this color from the first call on;
  /// null if alone.
  dist::Communicator* part_of(dist::Communicator* whole, std::unique_ptr<dist::Communicator>& place,
                              int color, const char* name);
  /// Returns the places of all communicators, of which those that others were split from come last.
  std::array<std::unique_ptr<dist::Communicator>*, 6> communicators() {
    return {&host_gradients_, &replicas_, &gradients_, &statistics_, &host_, &control_};
  }
  /// Aborts all communicators with `reason`, and those that are adopted later. Thread-safe.
  void abort_communicators(const std::string& reason);
  /// Returns whether the gradients are summed by messages, so that --allreduce applies.
  bool by_messages() const;
  dist::CommOptions comm_options(const char* name) const;
  /// Returns the pointer of the first rank of this process on all of its ranks.
  std::shared_ptr<void> share(std::shared_ptr<void> local);

  JobOptions options_;
  const char* program_ = "";
  std::unique_ptr<dist::Rendezvous> rendezvous_;
  std::function<void(ExitCode)> on_failure_;
  int ranks_on_my_cores_ = 1;
  std::vector<std::string> devices_;
  std::unique_ptr<dist::JobControl> plane_;
  std::mutex mutex_;          // guards the next seven against the thread of the control plane
  std::string abort_reason_;  // empty: none
  std::unique_ptr<dist::Communicator> control_;
  std::unique_ptr<dist::Communicator> gradients_;   // null on the CPU
  std::unique_ptr<dist::Communicator> statistics_;  // null on GPUs, and before the first call of statistics()
  std::unique_ptr<dist::Communicator> host_;        // null before the first call of host()
  // Null before the first call of host_groups(); the first one also on the CPU.
  std::unique_ptr<dist::Communicator> host_gradients_, replicas_;
};

}  // namespace convoy
