// The ranks of a program: how its processes meet, through what they talk, and how they fail together.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "apps/command_line.h"
#include "apps/run_main.h"
#include "comm/agreement.h"
#include "comm/communicator.h"
#include "comm/rendezvous.h"

namespace convoy {

class Endings;

struct JobOptions {
  std::optional<std::int64_t> devices;  // of one process, a thread each
  std::string rendezvous = "auto";
  std::string comm = "auto";
  double comm_timeout = 300;  // seconds
  bool debug_comm = false;
  bool allow_shared_gpu = false;
  std::optional<std::int64_t> wait_debugger;  // rank
};

/// --rendezvous, --comm, --comm-timeout, --debug-comm, --allow-shared-gpu and --wait-debugger.
void add_job_flags(CommandLine& line, JobOptions& options);

/// What carries texts and sums between the memories of CPUs where --comm says `comm`: memory where all ranks
/// share it, else what they met through, with memory inside the hosts that have several.
std::string cpu_communicator_kind(const std::string& comm, const RankInfo& info);
/// All ranks call it. UsageError where memory is to be shared by several hosts.
std::unique_ptr<Communicator> make_cpu_communicator(const std::string& kind, Rendezvous& rendezvous,
                                                    const CommOptions& options);

/// Calls body, on all ranks, with a communicator among them that waits for a day: for a download, or a
/// person.
void with_patience(Rendezvous& rendezvous, const std::string& comm,
                   const std::function<void(Communicator&)>& body);

/// All ranks of one program. A program that runs alone is a job of one rank, which has no communicators.
class Job {
 public:
  /// Meets the other ranks. From then on whatever one of them fails with ends all of them (run()). UsageError
  /// for flags that contradict each other; PeerError where somebody does not come.
  explicit Job(const JobOptions& options);
  /// A rank that is one thread of a process (in_threads()) and has met the others. All of them share
  /// `endings`, which prints what goes wrong.
  Job(const JobOptions& options, std::unique_ptr<Rendezvous> rendezvous, Endings& endings);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  const RankInfo& info() const { return rendezvous_->info(); }
  const std::vector<RankInfo>& all() const { return rendezvous_->all(); }
  bool is_alone() const { return info().world == 1; }
  /// As the ranks met, for what needs more of it than its communicators.
  Rendezvous& rendezvous() { return *rendezvous_; }
  /// Rank 0: the one that writes and prints.
  bool is_first() const { return info().rank == 0; }
  bool by_mpirun() const { return info().source == "mpi"; }
  bool in_threads() const { return info().source == "threads"; }
  /// Ranks of this host that may run on the very same cores as this one, itself included.
  int ranks_on_my_cores() const { return ranks_on_my_cores_; }

  /// Calls body, once a debugger is attached to the rank that --wait-debugger names. What body throws is
  /// printed as the program's error, with the rank's name in front, told to the
  /// other ranks, and goes on as ReportedError. Under mpirun the first line is that of the cause.
  int run(const char* program, const std::function<int()>& body);

  /// Ends the other ranks' waiting with the reason why this one leaves. run() does so, too, but comes after
  /// everything that leaves first.
  void tell(const std::string& what) noexcept;

  /// Opens the way for the gradients of models on this device. Every rank calls it, once. UsageError, on all
  /// ranks alike, where their devices differ in kind or two of them are one GPU.
  void connect(const Device& device);
  /// Null where this rank is alone.
  Communicator* gradients() const;
  /// For what is small and lies in the CPU's memory; where ranks compute on the CPU, the same as gradients().
  Communicator* control() const { return control_.get(); }
  /// For the statistics of batch norms, which are exchanged while gradients travel: on the CPU a communicator
  /// of their own, which the first call, by every rank, makes; on GPUs gradients().
  Communicator* statistics();

  /// By rank, once they are connected: "cuda:1".
  const std::vector<std::string>& devices() const { return devices_; }

  /// Calls body on rank 0, and then on the others: what rank 0 downloads they find. It may take a day.
  void first_before_others(const std::function<void()>& body);

  /// What `make` gives in the first rank of this process, in all ranks of it: what is large, and nobody
  /// changes.
  template <class T>
  std::shared_ptr<const T> make_once(const std::function<T()>& make) {
    if (!in_threads()) return std::make_shared<const T>(make());
    return std::static_pointer_cast<T>(share(is_first() ? std::make_shared<T>(make()) : nullptr));
  }

  /// UsageError on all ranks where a claim of theirs differs.
  void check_same(const std::vector<Claim>& mine);
  /// "2 ranks on 1 host, shm; met by OMPI_COMM_WORLD_*, MPI".
  std::string describe() const;

  /// The end, on which all ranks agree.
  void finish();

 private:
  void open();
  /// Calls body, which throws UsageError on all ranks alike or on none.
  void agree(const std::function<void()>& body);
  [[noreturn]] void fail_together(const Failure& failure);
  /// Rank 0's, in all ranks of this process.
  std::shared_ptr<void> share(std::shared_ptr<void> mine);

  JobOptions options_;
  const char* program_ = "";
  std::unique_ptr<Rendezvous> rendezvous_;
  Endings* endings_ = nullptr;  // of threads
  int ranks_on_my_cores_ = 1;
  std::vector<std::string> devices_;
  std::unique_ptr<Communicator> control_;
  std::unique_ptr<Communicator> gradients_;   // of GPUs; null on the CPU
  std::unique_ptr<Communicator> statistics_;  // of the CPU, where somebody has asked for it
};

/// Calls body, before the ranks have met. Under mpirun, which ends all ranks when the first one fails, rank 0
/// speaks for the others where all make the same mistake.
void in_turn(const std::function<void()>& body);

}  // namespace convoy
