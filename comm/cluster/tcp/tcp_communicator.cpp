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
  return std::make_unique<TcpLinks>(std::make_shared<PeerConnector>(rendezvous), ranks, info.rank,
                                    "all", Deadline(options.timeout_seconds));
}

std::unique_ptr<Communicator> make_tcp_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  return std::make_unique<CpuCommunicator>(
      std::make_unique<MessageTransport>(make_tcp_links(rendezvous, options)), options);
}

}  // namespace convoy::dist
