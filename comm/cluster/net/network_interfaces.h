// The network interfaces of this host.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace convoy::dist {

/// The environment variable that names the interface which ranks use.
constexpr const char* kInterfaceVariable = "CONVOY_INTERFACE";

/// An address of a network interface.
struct InterfaceAddress {
  std::string interface;  // "eth0"
  std::string address;    // numeric
  std::string network;    // "10.0.0.0/24"
  unsigned flags = 0;     // IFF_UP and others
};

/// Returns all IPv4 addresses of this host, and then all IPv6 addresses that are not link-local.
std::vector<InterfaceAddress> list_addresses();

/// Returns the numeric addresses at which other hosts may reach this one: those of all interfaces that are up
/// and running, or, if there are none, of those that are up. Loopback and link-local addresses are not among
/// them.
std::vector<std::string> addresses_of_this_host();

/// Returns the address that rank 0 listens at if its name resolves to `resolved` on its own host, which has
/// the addresses `own`: the resolved one if it is the only one and one of `own`. Returns nullopt for all
/// interfaces. So if /etc/hosts maps the name to 127.0.1.1, as on Debian, other hosts can reach it
/// nevertheless.
std::optional<std::string> address_to_listen_at(const std::vector<std::string>& resolved,
                                                const std::vector<std::string>& own);

/// Returns the address of the interface that CONVOY_INTERFACE names, of IPv4 if it has one; nullopt if the
/// variable is unset. Throws UsageError if this host has no such interface, or the interface no address.
std::optional<std::string> address_of_chosen_interface();

}  // namespace convoy::dist
