// Communicators on the CPU that exchange data through gloo's TCP connections, across hosts and without MPI.
#pragma once

#include <memory>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/message_links.h"

namespace convoy::dist {

/// Returns a communicator of all ranks that exchanges data through gloo. Collective call. Ranks connect to
/// each other's RankInfo::address, or to the interface named by GLOO_SOCKET_IFNAME. Throws UsageError if the
/// rendezvous has no store (as with MPI), or if the build has no gloo.
std::unique_ptr<Communicator> make_gloo_communicator(Rendezvous& rendezvous, const CommOptions& options = {});

/// Returns only the message links between all ranks. Collective call. Throws the same errors.
std::unique_ptr<MessageLinks> make_gloo_links(Rendezvous& rendezvous, const CommOptions& options);

}  // namespace convoy::dist
