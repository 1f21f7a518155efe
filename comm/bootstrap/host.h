// Positions of ranks: their hosts, and which of them share a machine.
#pragma once

#include <span>
#include <string>
#include <vector>

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

/// Identifies a host. The name is not sufficient: two machines may both be called localhost, and two
/// containers may have the same name.
struct HostId {
  std::string name;     ///< as the system calls it
  std::string boot;     ///< the kernel's boot ID, which differs between machines
  std::string network;  ///< the network namespace, such as "net:[4026531833]"
  /// The PID namespace, such as "pid:[4026531836]". Shared memory is opened through /proc, so ranks of two
  /// containers with the host's network cannot share any.
  std::string processes;

  /// Equal hosts are the same one. Their order has no meaning.
  friend auto operator<=>(const HostId&, const HostId&) = default;
};

/// Returns the identity of the host of this process.
HostId this_host();

/// Serializes `host` for parse_host().
std::string to_string(const HostId& host);
/// Parses the output of to_string(). Throws PeerError for any other text.
HostId parse_host(const std::string& text);

/// Returns the positions of all ranks, given their hosts in rank order. Different hosts with the same name
/// get their index appended to the name.
std::vector<RankInfo> make_rank_infos(std::span<const HostId> by_rank, const std::string& source);

}  // namespace convoy::dist
