// Communicators on the CPU across several hosts: shared memory within a host, MPI or TCP between hosts. The
// thread that uses the rendezvous calls these functions.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "convoy/comm/cluster/tcp/tcp_communicator.h"
#include "convoy/comm/core/communicator.h"
#include "convoy/comm/core/message_links.h"
#include "convoy/comm/transport/shm/shm_communicator.h"

namespace convoy::dist {

/// Options of a communicator across hosts.
struct HierarchicalOptions {
  CommOptions comm = {};  // of the communicator
  /// Size of a pipelined chunk. 0 is HierarchicalLayout::small_chunk_bytes() until the first sum that is larger
  /// or other collective of more than 1 MiB, and then default_chunk_bytes(). The value of rank 0 is used by all
  /// ranks.
  std::size_t chunk_bytes = 0;
};

/// Returns the links that a communicator across hosts needs: to the ranks of other hosts with the same local rank, or those
/// of them that `options` names, and to those of the trees along which texts travel. To all ranks, if not all hosts have
/// equally many. Ranks with equal values in `host_of_rank` share a host.
LinkGraph hierarchical_graph(std::vector<int> host_of_rank, const AllReduceOptions& options);

/// Returns a communicator of all ranks. Collective call. Hosts are those of the rendezvous. Messages between
/// hosts use MPI if the ranks were initialized through MPI, otherwise TCP. Throws UsageError if MPI
/// is missing or unsuitable, and PeerError on all ranks if one of them fails.
std::unique_ptr<Communicator> make_hierarchical_communicator(Rendezvous& rendezvous,
                                                             const HierarchicalOptions& options = {});

/// Does the same with the given links, those of hierarchical_graph() at least, and the given hosts. Ranks with equal values in
/// `host_of_rank` share a host; the values are arbitrary, but all ranks must pass the same ones. `exchange`
/// must connect all ranks. Throws PeerError on all ranks if one of them fails.
std::unique_ptr<Communicator> make_hierarchical_communicator(std::unique_ptr<MessageLinks> links,
                                                             std::span<const int> host_of_rank,
                                                             const TextExchange& exchange,
                                                             const HierarchicalOptions& options = {});

}  // namespace convoy::dist
