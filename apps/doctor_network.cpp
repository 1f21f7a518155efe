#include "apps/doctor_network.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <array>
#include <memory>
#include <optional>
#include <thread>

#include "kernels/runtime/check.h"

namespace convoy::doctor {
namespace {

constexpr double kPatience = 2;  // seconds for one address: a host beside this one takes a thousandth of it
constexpr double kHearing = 30;  // for who has answered already: only a busy process takes its time

struct FreeAddresses {
  void operator()(ifaddrs* list) const { freeifaddrs(list); }
};
using Addresses = std::unique_ptr<ifaddrs, FreeAddresses>;

Addresses addresses_of_this_host() {
  ifaddrs* list = nullptr;
  return Addresses(getifaddrs(&list) == 0 ? list : nullptr);
}

/// "10.0.0.0/24" of an address and its mask, in the order of the network.
std::string network_text(int family, const std::uint8_t* address, const std::uint8_t* mask,
                         std::size_t bytes) {
  std::array<std::uint8_t, 16> first{};
  int bits = 0;
  for (std::size_t i = 0; i < bytes; ++i) {
    first[i] = address[i] & mask[i];
    for (int bit = 0; bit < 8; ++bit) bits += mask[i] >> bit & 1;
  }
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family, first.data(), text, sizeof text);
  return fmt::format("{}/{}", text, bits);
}

std::optional<InterfaceFacts> facts_of(const ifaddrs& entry) {
  if (entry.ifa_addr == nullptr || entry.ifa_netmask == nullptr || (entry.ifa_flags & IFF_UP) == 0)
    return std::nullopt;
  const int family = entry.ifa_addr->sa_family;
  if (family != AF_INET && family != AF_INET6) return std::nullopt;
  const std::uint8_t* address = nullptr;
  const std::uint8_t* mask = nullptr;
  if (family == AF_INET) {
    address = reinterpret_cast<const std::uint8_t*>(
        &reinterpret_cast<const sockaddr_in*>(entry.ifa_addr)->sin_addr);
    mask = reinterpret_cast<const std::uint8_t*>(
        &reinterpret_cast<const sockaddr_in*>(entry.ifa_netmask)->sin_addr);
  } else {
    const auto& v6 = *reinterpret_cast<const sockaddr_in6*>(entry.ifa_addr);
    if (IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr)) return std::nullopt;
    address = v6.sin6_addr.s6_addr;
    mask = reinterpret_cast<const sockaddr_in6*>(entry.ifa_netmask)->sin6_addr.s6_addr;
  }
  char text[INET6_ADDRSTRLEN] = {};
  inet_ntop(family, address, text, sizeof text);
  return InterfaceFacts{.name = entry.ifa_name,
                        .address = text,
                        .network = network_text(family, address, mask, family == AF_INET ? 4 : 16),
                        .is_loopback = (entry.ifa_flags & IFF_LOOPBACK) != 0};
}

/// A connection that is open, and what is to be heard through it.
struct Call {
  LinkFacts link;
  std::string greeting;
  std::optional<Socket> socket;
};

/// All addresses of one host, one after the other.
void call_host(const RankFacts& me, const RankFacts& other, std::vector<Call>& calls) {
  for (const InterfaceFacts& interface : other.interfaces) {
    if (interface.port == 0) continue;
    Call call{.link = {.from = me.node,
                       .to = other.node,
                       .from_host = me.host,
                       .to_host = other.host,
                       .interface = interface.name,
                       .address = interface.address,
                       .network = interface.network},
              .greeting = greeting_of(other)};
    call.socket = try_connect({interface.address, interface.port}, Deadline(kPatience), call.link.error);
    calls.push_back(std::move(call));
  }
}

/// Whether the other side is who it should be.
void listen_to(Call& call) {
  if (!call.socket) return;
  const Deadline deadline(kHearing);
  std::string heard;
  while (heard.size() < call.greeting.size() && receive_some(*call.socket, heard, deadline)) {
  }
  if (heard != call.greeting)
    call.link.error = heard.empty() ? "connected, and heard nothing" : "another process answers there";
}

}  // namespace

std::vector<InterfaceFacts> list_addresses() {
  std::vector<InterfaceFacts> found;
  const Addresses list = addresses_of_this_host();
  for (const ifaddrs* entry = list.get(); entry != nullptr; entry = entry->ifa_next)
    if (auto facts = facts_of(*entry)) found.push_back(std::move(*facts));
  return found;
}

std::vector<std::string> list_interfaces() {
  std::vector<std::string> names;
  const std::unique_ptr<struct if_nameindex[], void (*)(struct if_nameindex*)> list(if_nameindex(),
                                                                                    if_freenameindex);
  for (std::size_t i = 0; list != nullptr && list[i].if_index != 0; ++i) names.emplace_back(list[i].if_name);
  return names;
}

Doors::Doors(std::vector<InterfaceFacts>& interfaces) {
  for (InterfaceFacts& interface : interfaces) {
    if (interface.is_loopback) continue;
    try {
      Socket door = listen_at({interface.address, 0});
      interface.port = local_port_of(door);
      doors_.push_back(std::move(door));
    } catch (const UsageError&) {  // nobody tries it, then
    }
  }
}

void Doors::answer(const std::string& greeting) const {
  for (const Socket& door : doors_)
    while (const std::optional<Socket> visitor = accept_waiting(door))
      send_all(*visitor, greeting, Deadline(kPatience));
}

std::string greeting_of(const RankFacts& facts) {
  return fmt::format("convoy-doctor {} {} {:.6f}\n", facts.rank, facts.process, facts.clock);
}

std::vector<LinkFacts> try_links(Rendezvous& rendezvous, const std::vector<RankFacts>& ranks,
                                 const Doors* doors) {
  const RankFacts& me = ranks[static_cast<std::size_t>(rendezvous.info().rank)];
  std::vector<const RankFacts*> others;  // the first rank of each other host
  for (const RankFacts& facts : ranks)
    if (doors != nullptr && facts.local_rank == 0 && facts.node != me.node) others.push_back(&facts);
  std::vector<std::vector<Call>> calls(others.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < others.size(); ++i)
    threads.emplace_back([&, i] { call_host(me, *others[i], calls[i]); });
  for (std::thread& thread : threads) thread.join();

  rendezvous.barrier();  // everybody stands before all doors
  if (doors != nullptr) doors->answer(greeting_of(me));
  nlohmann::json mine = nlohmann::json::array();
  for (std::vector<Call>& of_host : calls)
    for (Call& call : of_host) {
      listen_to(call);
      mine.push_back(call.link);
    }
  std::vector<LinkFacts> links;
  for (const std::string& text : rendezvous.all_gather(mine.dump()))
    for (const nlohmann::json& link : nlohmann::json::parse(text)) links.push_back(link.get<LinkFacts>());
  return links;
}

}  // namespace convoy::doctor
