#include "comm/hierarchical_communicator.h"

#include <algorithm>
#include <utility>

#include "comm/cpu_communicator.h"
#include "comm/gloo_communicator.h"
#include "comm/hierarchical_transport.h"
#include "comm/mpi_communicator.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

std::size_t rounded_up(std::size_t bytes, std::size_t to) { return (bytes + to - 1) / to * to; }

/// The window of this rank's host. All ranks take part in as many exchanges, also those of a host whose
/// window could not be made, so that all hear of it.
std::unique_ptr<ShmWindow> make_window(const HierarchicalLayout& layout, const TextExchange& exchange,
                                       std::size_t chunk_bytes) {
  int begun = 0, done = 0;
  const auto exchange_inside = [&](const std::string& mine) {
    ++begun;
    const std::vector<std::string> all = exchange(mine);
    ++done;
    std::vector<std::string> inside;
    for (const int neighbour : layout.neighbours())
      inside.push_back(all[static_cast<std::size_t>(neighbour)]);
    return inside;
  };
  std::unique_ptr<ShmWindow> window;
  std::string failure;
  try {
    window = std::make_unique<ShmWindow>(layout.local(), static_cast<int>(layout.neighbours().size()),
                                         exchange_inside, chunk_bytes, layout.neighbours());
  } catch (const Error& error) {
    if (done < begun) throw;  // it is the exchange that failed
    failure = error.what();
  }
  while (done < ShmWindow::kExchanges) exchange_inside("");
  for (const std::string& text : exchange(failure))
    if (!text.empty()) throw PeerError(text);
  return window;
}

}  // namespace

std::unique_ptr<Transport> make_hierarchical_transport(std::unique_ptr<MessageLinks> links,
                                                       std::span<const int> host_of_rank,
                                                       const TextExchange& exchange,
                                                       std::size_t chunk_bytes) {
  const HierarchicalLayout layout(host_of_rank, links->rank());
  const std::size_t of_first = std::stoull(exchange(std::to_string(chunk_bytes)).front());
  const std::size_t whole =
      rounded_up(std::max<std::size_t>(of_first, 1), 64 * static_cast<std::size_t>(layout.size()));
  std::unique_ptr<ShmWindow> window = make_window(layout, exchange, whole);
  return std::make_unique<HierarchicalTransport>(std::move(links), layout, std::move(window), whole);
}

std::unique_ptr<Communicator> make_hierarchical_communicator(std::unique_ptr<MessageLinks> links,
                                                             std::span<const int> host_of_rank,
                                                             const TextExchange& exchange,
                                                             const HierarchicalOptions& options) {
  check(static_cast<int>(host_of_rank.size()) == links->size(), "hosts of {} ranks, expected {}",
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
      through_mpi ? make_mpi_links(rendezvous) : make_gloo_links(rendezvous, options.comm), host_of_rank,
      [&](const std::string& mine) { return rendezvous.all_gather(mine); }, options);
}

}  // namespace convoy
