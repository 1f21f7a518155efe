// Initialization of a job: the ranks find each other and learn their positions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/bootstrap/host.h"
#include "convoy/comm/core/waits.h"

namespace convoy::dist {

class Rendezvous;
struct RendezvousOptions;
struct RendezvousPlan;

/// Initializes the rank of a plan through a key-value store. Throws the errors of Rendezvous::init().
using RendezvousByStore = std::unique_ptr<Rendezvous>(const RendezvousPlan& plan,
                                                      const RendezvousOptions& options);

/// Options of Rendezvous::init().
struct RendezvousOptions {
  /// "auto", "mpi", "tcp://HOST:PORT", "file:///PATH" or "env".
  std::string init_method = "auto";
  double timeout_seconds = row_of(Wait::rendezvous).seconds;  // of init() and of every collective call
  /// Replace environment variables of the same names.
  std::map<std::string, std::string> variables = {};
  /// For ranks that meet without MPI: rendezvous_by_store() of comm/cluster/store. Null: such jobs are
  /// refused.
  RendezvousByStore* by_store = nullptr;
};

/// The initialized ranks of a job. It exchanges small amounts of data, rarely; communicators exchange the
/// rest. The main thread must create it before, and destroy it after, all communicators. Not thread-safe.
class Rendezvous {
 public:
  /// Initializes this process as a rank of a job. Collective call. With "auto", the first complete source is
  /// used: RANK and WORLD_SIZE, OMPI_COMM_WORLD_*, SLURM_*, PMI_*, MLP_*, otherwise a single process. Throws
  /// UsageError for contradictory settings. Throws PeerError that lists the joined and the missing ranks when
  /// the timeout expires.
  static std::unique_ptr<Rendezvous> init(const RendezvousOptions& options = {});

  virtual ~Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Returns the position of this rank.
  const RankInfo& info() const { return all_[static_cast<std::size_t>(rank_)]; }
  /// Returns the positions of all ranks, in rank order.
  const std::vector<RankInfo>& all() const { return all_; }
  /// Returns the strings of all ranks, in rank order. Collective call: blocks until all ranks have called it.
  /// Throws PeerError if a rank is missing after the timeout.
  virtual std::vector<std::string> all_gather(const std::string& local) = 0;
  /// Blocks until all ranks have called it. Throws PeerError if a rank is missing after the timeout.
  void barrier() { all_gather(""); }
  /// Returns a description of the source that was used and of the other sources found:
  /// "OMPI_COMM_WORLD_*, MPI; SLURM_* too".
  const std::string& note() const { return note_; }

 protected:
  /// `note` is what note() returns.
  explicit Rendezvous(std::string note) : note_(std::move(note)) {}
  /// Sets the positions of all ranks, and which of them is this one. Called once, by the constructors.
  void set_positions(int rank, std::vector<RankInfo> all) {
    rank_ = rank;
    all_ = std::move(all);
  }

 private:
  std::string note_;
  int rank_ = 0;
  std::vector<RankInfo> all_;
};

/// Throws UsageError on all ranks if two ranks of a host use the same GPU, unless `allow_shared_gpu` is true.
/// Collective call. `gpu` identifies this rank's GPU on its host (such as a UUID or PCI address); it is empty
/// on the CPU.
void check_gpu_sharing(Rendezvous& rendezvous, const std::string& gpu, bool allow_shared_gpu);

}  // namespace convoy::dist
