#include "convoy/comm/cluster/net/network_interfaces.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {
namespace {

/// Returns the bytes of an address, in network byte order.
const std::uint8_t* bytes_of(const sockaddr* address) {
  return address->sa_family == AF_INET
             ? reinterpret_cast<const std::uint8_t*>(&reinterpret_cast<const sockaddr_in*>(address)->sin_addr)
             : reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr.s6_addr;
}

/// Returns the network of an address: "10.0.0.0/24".
std::string network_of(const ifaddrs& entry) {
  if (entry.ifa_netmask == nullptr) return "";
  const int family = entry.ifa_addr->sa_family;
  const std::uint8_t* const address = bytes_of(entry.ifa_addr);
  const std::uint8_t* const mask = bytes_of(entry.ifa_netmask);
  std::array<std::uint8_t, 16> first{};
  int bits = 0;
  for (std::size_t i = 0; i < (family == AF_INET ? 4 : 16); ++i) {
    first[i] = address[i] & mask[i];
    bits += std::popcount(mask[i]);
  }
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family, first.data(), text, sizeof text);
  return fmt::format("{}/{}", text, bits);
}

}  // namespace

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
        addresses.push_back({entry->ifa_name, address, network_of(*entry), entry->ifa_flags});
    }
  }
  freeifaddrs(list);
  return addresses;
}

std::vector<std::string> addresses_of_this_host() {
  // An unused bridge of Docker is up, but not running; and so is a network card for a moment after it is set
  // up.
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
