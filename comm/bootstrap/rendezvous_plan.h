// The plan of an initialization, derived from an option and the environment without side effects.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/core/endpoint.h"

namespace convoy::dist {

struct RendezvousPlan {
  enum class Method { single_process, mpi, tcp, file };
  Method method = Method::single_process;
  /// The rank from the environment. With MPI, MPI's own rank is used instead.
  int rank = 0;
  /// 0 if the environment does not contain it; MPI then provides it.
  int world_size = 1;
  Endpoint endpoint;
  /// The ports that rank 0 tries after that of the endpoint.
  std::vector<int> other_ports;
  std::string path;
  std::string job;
  /// The local rank from the launcher, if it sets one.
  std::optional<int> local_rank;
  /// The value of RankInfo::source.
  std::string source;
  /// The value of Rendezvous::note().
  std::string note;
};

/// Returns the plan for RendezvousOptions::init_method and the given environment variables. Throws
/// UsageError if `init_method` is invalid, or if the rank, the world size or the address of rank 0 is
/// unknown.
RendezvousPlan plan_rendezvous(const std::string& init_method, const Variables& variables);

}  // namespace convoy::dist
