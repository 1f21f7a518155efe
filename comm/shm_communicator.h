// Ranks of one host, which exchange data through a window of shared memory.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace convoy {

/// Everybody's text, by rank: Rendezvous::all_gather, or what a test has.
using TextExchange = std::function<std::vector<std::string>(const std::string&)>;

struct ShmOptions {
  CommOptions comm = {};
  /// Of each rank's part of the window: a chunk of data, in and out. Larger data goes through in pieces.
  std::size_t chunk_bytes = std::size_t{128} << 10;
};

/// Every rank calls it. No name is left in /dev/shm when it returns, nor when it throws or the process dies
/// after the first exchange.
std::unique_ptr<Communicator> make_shm_communicator(int rank, int size, const TextExchange& exchange,
                                                    const ShmOptions& options = {});

}  // namespace convoy
