// Initialization of a job: the ranks find each other and learn their positions.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/bootstrap/host.h"

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
  double timeout_seconds = 60;  // of init() and of every collective call
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
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  /// Returns the position of this rank.
  virtual const RankInfo& info() const = 0;
  /// Returns the positions of all ranks, in rank order.
  virtual const std::vector<RankInfo>& all() const = 0;
  /// Returns the strings of all ranks, in rank order. Collective call: blocks until all ranks have called it.
  /// Throws PeerError if a rank is missing after the timeout.
  virtual std::vector<std::string> all_gather(const std::string& local) = 0;
  /// Blocks until all ranks have called it. Throws PeerError if a rank is missing after the timeout.
  virtual void barrier() = 0;
  /// Returns a description of the source that was used and of the other sources found:
  /// "OMPI_COMM_WORLD_*, MPI; SLURM_* too".
  virtual std::string note() const = 0;
};

/// Throws UsageError on all ranks if two ranks of a host use the same GPU, unless `allow_shared_gpu` is true.
/// Collective call. `gpu` identifies this rank's GPU on its host (such as a UUID or PCI address); it is empty
/// on the CPU.
void check_gpu_sharing(Rendezvous& rendezvous, const std::string& gpu, bool allow_shared_gpu);

}  // namespace convoy::dist
