// Who a process is among all of a job.
#pragma once

#include <string>

namespace convoy {

/// Ranks of one host share its memory and its GPUs. A host is a name *and* a network namespace: two
/// containers of one machine may have the same name, and reach each other only through the network.
struct RankInfo {
  int rank = 0;
  int world = 1;
  int local_rank = 0;  // among the ranks of this host, in their order; which GPU is whose
  int local_world = 1;
  int node = 0;  // hosts count from 0, in the order of their first ranks
  int nodes = 1;
  std::string host;
  std::string address;  // at which the others reach this host, in digits; "" where nobody has found out
  std::string source = "one process";  // or "mpi", "environment", "tcp", "file", "threads": who said so
};

}  // namespace convoy
