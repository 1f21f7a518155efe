// How the processes of a job meet and learn their ranks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "comm/rank_info.h"
#include "comm/store.h"

namespace convoy {

struct RendezvousOptions {
  /// "auto", "mpi", "tcp://HOST:PORT", "file:///PATH", "env".
  std::string where = "auto";
  double timeout_seconds = 60;
};

/// All ranks of a job, met. What it exchanges is small and seldom: data goes through communicators. Made and
/// destroyed by the main thread, before and after everything else that communicates.
class Rendezvous {
 public:
  /// The first complete source wins: the flag, RANK and WORLD_SIZE, OMPI_COMM_WORLD_*, SLURM_*, PMI_*, one
  /// process. UsageError for what contradicts itself; PeerError that lists who came and who is missing where
  /// the deadline passes.
  static std::unique_ptr<Rendezvous> meet(const RendezvousOptions& options = {});

  virtual ~Rendezvous() = default;
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  virtual const RankInfo& info() const = 0;
  virtual const std::vector<RankInfo>& all() const = 0;  // by rank
  /// Null where the ranks met without one (MPI, one process).
  virtual Store* store() = 0;
  /// Everybody's text, by rank. Every rank calls it, in the same order.
  virtual std::vector<std::string> all_gather(const std::string& mine) = 0;
  virtual void barrier() = 0;
  /// Which source won, and which others were there: "OMPI_COMM_WORLD_*, MPI; SLURM_* too".
  virtual std::string note() const = 0;
};

}  // namespace convoy
