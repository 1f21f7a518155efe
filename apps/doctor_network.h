// Which of a host's addresses the others can reach: each host listens at all of its own, and tries all of the
// others'.
#pragma once

#include <string>
#include <vector>

#include "apps/doctor_facts.h"
#include "comm/rendezvous.h"
#include "comm/socket.h"

namespace convoy::doctor {

/// Those of interfaces that are up, but for IPv6 addresses that hold within one cable only.
std::vector<InterfaceFacts> list_addresses();
/// All, up or down.
std::vector<std::string> list_interfaces();

/// One that listens at each address which is not the host's own loop, and says who it is to whoever comes.
class Doors {
 public:
  /// Opens them, and notes the ports. One that cannot be opened keeps port 0.
  explicit Doors(std::vector<InterfaceFacts>& interfaces);
  /// To everybody who has come so far.
  void answer(const std::string& greeting) const;

 private:
  std::vector<Socket> doors_;
};

/// What the door of a rank says, and no other: two hosts may have the same address, each for itself.
std::string greeting_of(const RankFacts& facts);

/// All links between hosts, on all ranks, which all call it. doors: of the first rank of each host.
std::vector<LinkFacts> try_links(Rendezvous& rendezvous, const std::vector<RankFacts>& ranks,
                                 const Doors* doors);

}  // namespace convoy::doctor
