// A rank's position in its job: rank, local rank and host.
#pragma once

#include <string>

namespace convoy::dist {

/// The identity of one rank. Ranks of one host share its memory and its GPUs. A host is a machine and a
/// network namespace: two containers of one machine are two hosts, since they reach each other only through
/// the network. A value without shared state.
struct RankInfo {
  int rank = 0;        // position in the job, from 0
  int world_size = 1;  // number of ranks of the job
  /// Position among the ranks of this host, in rank order. Determines the rank's GPU.
  int local_rank = 0;
  int local_world_size = 1;  // number of ranks of this host
  /// Index of the host, from 0, in the order of the hosts' lowest ranks.
  int node = 0;
  /// Number of hosts.
  int nodes = 1;
  std::string host;  // name of the host
  /// Numeric address at which other ranks reach this host; empty if unknown.
  std::string address;
  /// How the ranks were initialized: "one process", "mpi", "environment", "tcp", "file" or "threads".
  std::string source = "one process";
};

}  // namespace convoy::dist
