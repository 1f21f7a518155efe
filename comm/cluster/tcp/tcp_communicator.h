// Communicators on the CPU that exchange data through TCP connections, across hosts and without MPI.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/message_links.h"

namespace convoy::dist {

/// Returns a communicator of all ranks that exchanges data through TCP. Collective call. Ranks connect to
/// each other's RankInfo::address, or to the interface that CONVOY_INTERFACE names, and prove that they
/// belong to the job (PeerConnector). Throws UsageError if there is no such interface, and PeerError that
/// names missing ranks.
std::unique_ptr<Communicator> make_tcp_communicator(Rendezvous& rendezvous, const CommOptions& options = {});

/// Returns the other ranks with which a rank exchanges messages, in ascending order, as positions among `members`. These
/// are ranks of the job, in ascending order; `rank` is the position of the one that asks.
using LinkGraph = std::function<std::vector<int>(std::span<const int> members, int rank)>;

/// Returns only the message links, from each rank to those of `graph`; if it is empty, to options.all_reduce.peers().
/// Collective call. Throws the same errors.
std::unique_ptr<MessageLinks> make_tcp_links(Rendezvous& rendezvous, const CommOptions& options,
                                             const LinkGraph& graph = {});

}  // namespace convoy::dist
