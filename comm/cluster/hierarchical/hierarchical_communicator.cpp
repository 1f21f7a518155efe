#include "convoy/comm/cluster/hierarchical/hierarchical_communicator.h"

#include <algorithm>
#include <utility>

#include "convoy/comm/cluster/hierarchical/hierarchical_transport.h"
#include "convoy/comm/cluster/tcp/tcp_communicator.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/mpi/mpi_communicator.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/round_up.h"

namespace convoy::dist {
namespace {

/// Creates the shared segment of this rank's host. Collective call of all ranks. Every rank calls `exchange`
/// equally often, also on a host where the segment cannot be created. So all ranks receive the error and
/// throw it.
std::unique_ptr<SharedSegment> make_segment(const HierarchicalLayout& layout, const TextExchange& exchange,
                                            std::size_t chunk_bytes) {
  int begun = 0, done = 0;
  const auto exchange_within_host = [&](const std::string& text) {
    ++begun;
    const std::vector<std::string> all = exchange(text);
    ++done;
    std::vector<std::string> texts;
    for (const int other : layout.host_ranks()) texts.push_back(all[static_cast<std::size_t>(other)]);
    return texts;
  };
  std::unique_ptr<SharedSegment> segment;
  std::string failure;
  try {
    segment = std::make_unique<SharedSegment>(
        layout.local_rank(), static_cast<int>(layout.host_ranks().size()), exchange_within_host, chunk_bytes,
        layout.host_ranks(), layout.size());
  } catch (const Error& error) {
    if (done < begun) throw;  // the exchange itself failed
    failure = error.what();
  }
  while (done < SharedSegment::kExchanges) exchange_within_host("");
  for (const std::string& text : exchange(failure))
    if (!text.empty()) throw PeerError(text);
  return segment;
}

}  // namespace

std::unique_ptr<Transport> make_hierarchical_transport(std::unique_ptr<MessageLinks> links,
                                                       std::span<const int> host_of_rank,
                                                       const TextExchange& exchange,
                                                       std::size_t chunk_bytes) {
  const HierarchicalLayout layout(host_of_rank, links->rank());
  const std::size_t of_first = std::stoull(exchange(std::to_string(chunk_bytes)).front());
  const std::size_t requested = of_first == 0 ? layout.default_chunk_bytes() : of_first;
  const std::size_t whole =
      round_up(std::max<std::size_t>(requested, 1), 64 * static_cast<std::size_t>(layout.size()));
  std::unique_ptr<SharedSegment> segment = make_segment(layout, exchange, whole);
  return std::make_unique<HierarchicalTransport>(std::move(links), layout, std::move(segment), whole);
}

std::unique_ptr<Communicator> make_hierarchical_communicator(std::unique_ptr<MessageLinks> links,
                                                             std::span<const int> host_of_rank,
                                                             const TextExchange& exchange,
                                                             const HierarchicalOptions& options) {
  check(static_cast<int>(host_of_rank.size()) == links->size(), "host_of_rank: found {} ranks, expected {}",
        host_of_rank.size(), links->size());
  return std::make_unique<CpuCommunicator>(
      make_hierarchical_transport(std::move(links), host_of_rank, exchange, options.chunk_bytes),
      options.comm);
}

std::unique_ptr<Communicator> make_hierarchical_communicator(Rendezvous& rendezvous,
                                                             const HierarchicalOptions& options) {
  std::vector<int> host_of_rank;
  for (const RankInfo& info : rendezvous.all()) host_of_rank.push_back(info.node);
  const bool through_mpi = rendezvous.info().source == "mpi";
  return make_hierarchical_communicator(
      through_mpi ? make_mpi_links(rendezvous) : make_tcp_links(rendezvous, options.comm), host_of_rank,
      [&](const std::string& text) { return rendezvous.all_gather(text); }, options);
}

}  // namespace convoy::dist
