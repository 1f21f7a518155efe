// Communicators between processes of one host, which exchange data through shared memory. Several threads may
// create communicators at once, each with an exchange of its own.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/core/communicator.h"

namespace convoy::dist {

/// An all-gather of strings: returns the strings of all ranks, in rank order. Rendezvous::all_gather is one.
using TextExchange = std::function<std::vector<std::string>(const std::string&)>;

/// Options of a communicator through shared memory.
struct ShmOptions {
  CommOptions comm = {};  // of the communicator
  /// Size of each of a rank's chunk buffers in the shared segment. Larger data is pipelined in chunks. The
  /// value of rank 0 is used by all ranks.
  std::size_t chunk_bytes = std::size_t{256} << 10;
};

/// Returns a communicator of `size` processes of one host. Collective call; `exchange` must connect the same
/// ranks. Throws PeerError on all ranks if one of them cannot create or open the shared segment. Leaves no
/// entry in /dev/shm, even if it throws or the process dies.
std::unique_ptr<Communicator> make_shm_communicator(int rank, int size, const TextExchange& exchange,
                                                    const ShmOptions& options = {});

}  // namespace convoy::dist
