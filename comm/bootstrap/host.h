// Identification of hosts: which ranks share a machine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "convoy/comm/bootstrap/rank_info.h"

namespace convoy::dist {

/// Identifies a host. The name is not sufficient: two machines may both be called localhost, and two
/// containers may have the same name.
struct HostId {
  std::string name;
  std::string boot;     // the kernel's boot ID, which differs between machines
  std::string network;  // the network namespace, such as "net:[4026531833]"
  /// The PID namespace, such as "pid:[4026531836]". Shared memory is opened through /proc, so ranks of two
  /// containers with the host's network cannot share any.
  std::string processes;

  friend bool operator==(const HostId&, const HostId&) = default;
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
