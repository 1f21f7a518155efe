// Ranks of the CPU that exchange data through gloo's TCP connections: across hosts, without MPI.
#pragma once

#include <memory>

#include "comm/communicator.h"
#include "comm/message_links.h"
#include "comm/rendezvous.h"

namespace convoy {

/// Every rank calls it. Connections go to RankInfo::address; GLOO_SOCKET_IFNAME chooses another interface.
/// UsageError where the ranks met without a store (through MPI), or the build has no gloo.
std::unique_ptr<Communicator> make_gloo_communicator(Rendezvous& rendezvous, const CommOptions& options = {});

/// The links alone, of all ranks. The same errors.
std::unique_ptr<MessageLinks> make_gloo_links(Rendezvous& rendezvous, const CommOptions& options);

}  // namespace convoy
