#include "convoy/comm/transport/gloo/gloo_communicator.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include "convoy/comm/bootstrap/store/store_member.h"
#include "convoy/comm/transport/cpu_communicator.h"
#include "convoy/comm/transport/gloo/gloo_links.h"
#include "convoy/comm/transport/message_transport.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

/// Returns the IPv4 address of an interface that is up and not loopback; an empty string if there is none.
/// Prefers an interface with a link: an unused bridge of Docker is up, but not running.
std::string address_of_an_interface() {
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return "";
  std::string address;
  for (const unsigned required : {unsigned{IFF_UP | IFF_RUNNING}, unsigned{IFF_UP}})
    for (const ifaddrs* entry = list; entry != nullptr && address.empty(); entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
      if ((entry->ifa_flags & IFF_LOOPBACK) != 0 || (entry->ifa_flags & required) != required) continue;
      char digits[NI_MAXHOST] = {};
      if (getnameinfo(entry->ifa_addr, sizeof(sockaddr_in), digits, sizeof digits, nullptr, 0,
                      NI_NUMERICHOST) == 0)
        address = digits;
    }
  freeifaddrs(list);
  return address;
}

std::string address_for(const RankInfo& info) {
  if (info.nodes == 1) return "127.0.0.1";
  if (!info.address.empty()) return info.address;
  const std::string address = address_of_an_interface();
  check(!address.empty(),
        "gloo communicator: host {} has no address for other hosts; set GLOO_SOCKET_IFNAME to an interface",
        info.host);
  return address;
}

}  // namespace

std::unique_ptr<MessageLinks> make_gloo_links(Rendezvous& rendezvous, const CommOptions& options) {
  const RankInfo& info = rendezvous.info();
  Store* const store = rendezvous.store();
  check(store != nullptr || info.world_size == 1,
        "gloo communicator: the rendezvous has no store ({}); use one at tcp://HOST:PORT", rendezvous.note());
  std::shared_ptr<gloo::transport::Device> device = GlooLinks::open_device(address_for(info));
  // All ranks use rank 0's token as a unique group name. If a rank has thrown above, all_gather() fails on
  // the others.
  const std::string name = rendezvous.all_gather(random_token()).front();
  return std::make_unique<GlooLinks>(store, std::move(device), info.rank, info.world_size, name,
                                     Deadline(options.timeout_seconds));
}

std::unique_ptr<Communicator> make_gloo_communicator(Rendezvous& rendezvous, const CommOptions& options) {
  return std::make_unique<CpuCommunicator>(
      std::make_unique<MessageTransport>(make_gloo_links(rendezvous, options)), options);
}

}  // namespace convoy::dist
