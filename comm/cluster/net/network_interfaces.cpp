#include "convoy/comm/cluster/net/network_interfaces.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstdlib>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

struct InterfaceAddress {
  std::string interface;
  std::string address;  // numeric
  unsigned flags = 0;   // IFF_UP and others
};

/// Returns all IPv4 addresses, and then all IPv6 addresses that are not link-local.
std::vector<InterfaceAddress> list_addresses() {
  std::vector<InterfaceAddress> addresses;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return addresses;
  for (const int family : {AF_INET, AF_INET6}) {
    for (const ifaddrs* entry = list; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != family) continue;
      const socklen_t bytes = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
      char text[NI_MAXHOST] = {};
      if (getnameinfo(entry->ifa_addr, bytes, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) continue;
      const std::string address = text;
      if (address.find('%') == std::string::npos)  // the mark of a link-local address
        addresses.push_back({.interface = entry->ifa_name, .address = address, .flags = entry->ifa_flags});
    }
  }
  freeifaddrs(list);
  return addresses;
}

}  // namespace

std::vector<std::string> addresses_of_this_host() {
  // An unused bridge of Docker is up, but not running; and so is a network card for a moment after it is set up.
  for (const unsigned usable : {unsigned{IFF_UP | IFF_RUNNING}, unsigned{IFF_UP}}) {
    std::vector<std::string> addresses;
    for (const InterfaceAddress& entry : list_addresses())
      if ((entry.flags & (usable | IFF_LOOPBACK)) == usable) addresses.push_back(entry.address);
    if (!addresses.empty()) return addresses;
  }
  return {};
}

std::optional<std::string> address_to_listen_at(const std::vector<std::string>& resolved,
                                                const std::vector<std::string>& own) {
  if (resolved.size() != 1 || std::find(own.begin(), own.end(), resolved.front()) == own.end())
    return std::nullopt;
  return resolved.front();
}

std::optional<std::string> address_of_chosen_interface() {
  const char* const name = std::getenv(kInterfaceVariable);
  if (name == nullptr || *name == '\0') return std::nullopt;
  std::string known;
  for (const InterfaceAddress& entry : list_addresses()) {
    if (entry.interface == name) return entry.address;
    if (known.find(entry.interface) == std::string::npos)
      known += (known.empty() ? "" : ", ") + entry.interface;
  }
  fail<UsageError>("{}: found '{}', which has no address on this host; expected one of {}",
                   kInterfaceVariable, name, known);
}

}  // namespace convoy::dist
