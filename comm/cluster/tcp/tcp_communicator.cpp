#include "convoy/comm/cluster/tcp/tcp_communicator.h"

#include <numeric>

#include "convoy/comm/cluster/net/peer_connector.h"
#include "convoy/comm/cluster/tcp/tcp_links.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/message_transport.h"

namespace convoy::dist {

std::unique_ptr<MessageLinks> make_tcp_links(Rendezvous& rendezvous, const CommOptions& options) {
  const RankInfo& info = rendezvous.info();
  std::vector<int> ranks(static_cast<std::size_t>(info.world_size));
  std::iota(ranks.begin(), ranks.end(), 0);
  PeerConnector::Layout layout{.rank = info.rank, .node_of_rank = {}, .address = info.address};
  for (const RankInfo& other : rendezvous.all()) layout.node_of_rank.push_back(other.node);
  const auto exchange = [&](const std::string& text) { return rendezvous.all_gather(text); };
  return std::make_unique<TcpLinks>(std::make_shared<PeerConnector>(layout, exchange), ranks, info.rank,
                                    "all", Deadline(options.timeout_seconds));
}

std::unique_ptr<Communicator> make_tcp_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  return std::make_unique<CpuCommunicator>(
      std::make_unique<MessageTransport>(make_tcp_links(rendezvous, options)), options);
}

}  // namespace convoy::dist
