// Probes of the network between hosts: each host listens on all of its addresses and connects to those of the
// others.
#pragma once

#include <string>
#include <vector>

#include "convoy/apps/cluster/doctor/facts.h"
#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/cluster/net/socket.h"

namespace convoy::doctor {

/// Returns the addresses of all interfaces that are up, except link-local IPv6 addresses.
std::vector<InterfaceFacts> list_addresses();
/// Returns the names of all interfaces, up or down.
std::vector<std::string> list_interfaces();

/// Listening sockets on every non-loopback address of this host, which reply to a connection with a greeting.
class PortProbes {
 public:
  /// Opens a socket per address on a free port and stores the ports in `interfaces`. An address on which no
  /// socket can be opened keeps port 0.
  explicit PortProbes(std::vector<InterfaceFacts>& interfaces);
  /// Sends `greeting` to all peers that have connected so far. Does not wait for more.
  void reply(const std::string& greeting) const;

 private:
  std::vector<dist::Socket> sockets_;
};

/// Returns the unique greeting of a rank's host. It distinguishes hosts that have the same private address.
std::string greeting_of(const RankFacts& facts);

/// Probes all addresses of all other hosts from each host and returns all links on all ranks. Collective
/// call. `port_probes` is null except on the first rank of each host. Blocks for at most 2 s per address plus
/// 30 s per reply.
std::vector<LinkFacts> probe_links(dist::Rendezvous& rendezvous, const std::vector<RankFacts>& ranks,
                                   const PortProbes* port_probes);

}  // namespace convoy::doctor
