// Ranks of the CPU on several hosts: shared memory inside each, MPI or gloo between them.
#pragma once

#include <memory>
#include <span>

#include "comm/communicator.h"
#include "comm/message_links.h"
#include "comm/rendezvous.h"
#include "comm/shm_communicator.h"

namespace convoy {

struct HierarchicalOptions {
  CommOptions comm = {};
  /// Of data that goes through at once: long messages between hosts, and few enough bytes for caches. Rank
  /// 0's, for all.
  std::size_t chunk_bytes = std::size_t{2} << 20;
};

/// Every rank calls it. Hosts are those of the meeting, and between them goes what it went through: MPI, or
/// gloo where there is a store.
std::unique_ptr<Communicator> make_hierarchical_communicator(Rendezvous& rendezvous,
                                                             const HierarchicalOptions& options = {});

/// The same with links between all ranks, and hosts as the caller has it: ranks of equal numbers, by rank,
/// are of one host. Every rank gives the same numbers.
std::unique_ptr<Communicator> make_hierarchical_communicator(std::unique_ptr<MessageLinks> links,
                                                             std::span<const int> host_of_rank,
                                                             const TextExchange& exchange,
                                                             const HierarchicalOptions& options = {});

}  // namespace convoy
