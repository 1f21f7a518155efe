// Names and addresses of hosts (libc.h).
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <unistd.h>

#include <cstdio>
#include <string>

#include "tests/simulation/libc.h"

namespace simulation {
namespace {

/// The result of getifaddrs().
struct Interfaces {
  ifaddrs loopback{}, network{};
  sockaddr_in addresses[4]{};
};

}  // namespace
}  // namespace simulation

using namespace simulation;

REPLACE(int, gethostname, (char* name, std::size_t size)) {
  if (self() == nullptr) {
    REAL(gethostname, name, size);
  }
  std::snprintf(name, size, "%s", self()->process->host->name.c_str());
  return 0;
}

REPLACE(ssize_t, readlink, (const char* path, char* buffer, std::size_t size)) {
  const std::string text = path;
  if (self() == nullptr || !text.starts_with("/proc/self/ns/")) {
    REAL(readlink, path, buffer, size);
  }
  const std::string target = text.substr(text.rfind('/') + 1) + ":[" + self()->process->host->name + "]";
  return static_cast<ssize_t>(target.copy(buffer, size));
}

REPLACE(int, getifaddrs, (ifaddrs * *list)) {
  if (self() == nullptr) {
    REAL(getifaddrs, list);
  }
  charge(kFileCall);
  auto* const found = new Interfaces;
  const std::uint32_t values[] = {INADDR_LOOPBACK, 0xff000000, self()->process->host->address, 0xffffff00};
  for (int i = 0; i < 4; ++i) {
    found->addresses[i].sin_family = AF_INET;
    found->addresses[i].sin_addr.s_addr = htonl(values[i]);
  }
  const auto address = [&](int index) { return reinterpret_cast<sockaddr*>(&found->addresses[index]); };
  static char loopback[] = "lo", network[] = "eth0";
  found->loopback = {.ifa_next = &found->network,
                     .ifa_name = loopback,
                     .ifa_flags = IFF_UP | IFF_RUNNING | IFF_LOOPBACK,
                     .ifa_addr = address(0),
                     .ifa_netmask = address(1),
                     .ifa_ifu = {},
                     .ifa_data = nullptr};
  found->network = {.ifa_next = nullptr,
                    .ifa_name = network,
                    .ifa_flags = IFF_UP | IFF_RUNNING,
                    .ifa_addr = address(2),
                    .ifa_netmask = address(3),
                    .ifa_ifu = {},
                    .ifa_data = nullptr};
  *list = &found->loopback;
  return 0;
}

REPLACE(void, freeifaddrs, (ifaddrs * list)) {
  if (self() == nullptr) {
    REAL(freeifaddrs, list);
  }
  delete reinterpret_cast<Interfaces*>(list);
}

REPLACE(int, getaddrinfo, (const char* node, const char* service, const addrinfo* hints, addrinfo** result)) {
  static auto* const real = next<std::remove_pointer_t<decltype(&replaced_getaddrinfo)>>("getaddrinfo");
  if (self() != nullptr && (hints->ai_flags & AI_NUMERICHOST) == 0) {
    charge(kMillisecond);  // a name server
    for (const auto& host : network()->hosts())
      if (node != nullptr && host->name == node) {
        in_addr address{.s_addr = htonl(host->address)};
        return real(inet_ntoa(address), service, hints, result);
      }
    return EAI_NONAME;
  }
  return real(node, service, hints, result);
}
