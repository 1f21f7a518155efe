// Which ranks share a machine.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "comm/rank_info.h"

namespace convoy {

/// The name alone would take two machines called localhost for one, and two containers of one name, too.
struct HostId {
  std::string name;
  std::string boot;     // the kernel's number for its run: another one on each machine
  std::string network;  // namespace: "net:[4026531833]"

  friend bool operator==(const HostId&, const HostId&) = default;
};

HostId this_host();

std::string text_of(const HostId& host);
/// PeerError for what text_of() did not make.
HostId parse_host(const std::string& text);

/// Everybody's, by rank. Hosts that share their name are told apart by their number.
std::vector<RankInfo> infos_of(std::span<const HostId> by_rank, const std::string& source);

}  // namespace convoy
