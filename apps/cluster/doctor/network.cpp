// The network: interfaces, and links between hosts.
#include <net/if.h>

#include <algorithm>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>

#include "convoy/apps/cluster/doctor/doctor.h"
#include "convoy/apps/common/text.h"
#include "convoy/comm/cluster/net/network_interfaces.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy::doctor {
namespace {

constexpr double kConnectTimeout = 2;  // seconds per address; a host on the same network needs about 2 ms
constexpr double kReplyTimeout =
    30;  // seconds; replies are sent before they are read, so only a busy host is slow

/// A connection to an address of another host, and the greeting that is expected on it.
struct Probe {
  LinkFacts link;
  std::string greeting;
  std::optional<dist::Socket> socket;
};

/// Connects to all addresses of one host, one after the other.
void connect_to_host(const RankFacts& me, const RankFacts& other, std::vector<Probe>& probes) {
  for (const InterfaceFacts& interface : other.interfaces) {
    if (interface.port == 0) continue;
    Probe probe{.link = {.from = me.node,
                         .to = other.node,
                         .from_host = me.host,
                         .to_host = other.host,
                         .interface = interface.name,
                         .address = interface.address,
                         .network = interface.network},
                .greeting = greeting_of(other)};
    probe.socket = dist::try_connect({interface.address, interface.port}, dist::Deadline(kConnectTimeout),
                                     probe.link.error, /*speaks_first=*/false);
    probes.push_back(std::move(probe));
  }
}

/// Reads the reply and stores an error if it is not the expected greeting.
void read_reply(Probe& probe) {
  if (!probe.socket) return;
  const dist::Deadline deadline(kReplyTimeout);
  std::string reply;
  while (reply.size() < probe.greeting.size() && dist::receive_some(*probe.socket, reply, deadline)) {
  }
  if (reply != probe.greeting)
    probe.link.error = reply.empty() ? "connected, but received no reply" : "another process replied";
}

/// Returns whether the rank has an interface called `name`, or beginning with `name` unless `is_whole`.
bool has_interface(const RankFacts& facts, const std::string& name, bool is_whole) {
  return std::ranges::any_of(facts.interface_names, [&](const std::string& known) {
    return is_whole ? known == name : known.starts_with(name);
  });
}

/// NCCL accepts prefixes of names, "=eth0" for an exact name, and "^docker" to exclude a prefix.
/// CONVOY_INTERFACE is one exact name.
void check_interface_names(const RankFacts& facts, bool is_alone, Findings& findings) {
  for (const char* variable : {"NCCL_SOCKET_IFNAME", "CONVOY_INTERFACE"}) {
    std::string value = value_at(facts.variables, variable);
    const bool is_nccl = variable[0] == 'N';
    if (value.empty() || (is_nccl && value[0] == '^')) continue;
    const bool is_whole = !is_nccl || value[0] == '=';
    if (is_nccl && is_whole) value.erase(0, 1);
    bool found = false;
    for (const std::string& part : split(value)) found = found || has_interface(facts, part, is_whole);
    if (found) continue;
    const bool is_needed = is_nccl ? facts.gpu.index >= 0 : !is_alone;
    findings.push_back(
        {.grade = is_needed ? Grade::error : Grade::warning,
         .found = fmt::format("{}={} names no interface of {}", variable, value_at(facts.variables, variable),
                              facts.host),
         .expected = fmt::format("one of {}", fmt::join(facts.interface_names, ", ")),
         .fix = fmt::format("unset {}, or set it to the interface that reaches the other hosts", variable)});
  }
}

/// The links from all other hosts to one host.
struct IncomingLinks {
  std::string to_host;
  std::map<std::string, std::vector<const LinkFacts*>> broken;  // by address
  std::set<std::string> good_interfaces, good_networks;
  std::map<int, bool> reached_from;  // by node: whether any address can be reached
};

void check_links(const IncomingLinks& incoming, const std::vector<LinkFacts>& links, Findings& findings) {
  std::set<std::string> cut_off;
  for (const LinkFacts& link : links)
    if (link.to_host == incoming.to_host && !incoming.reached_from.at(link.from))
      cut_off.insert(link.from_host);
  for (const std::string& from : cut_off)
    findings.push_back(
        {.grade = Grade::error,
         .found = fmt::format("{} cannot reach {} at any of its addresses", from, incoming.to_host),
         .expected = "a network that connects them, without a firewall between ranks",
         .fix = fmt::format("on {}, run ping {}; then open all TCP ports between the two hosts (ufw allow "
                            "from ADDRESS, or the security group of the cloud)",
                            from, incoming.to_host)});
  for (const auto& [address, failures] : incoming.broken) {
    const LinkFacts& link = *failures.front();
    if (!incoming.reached_from.at(link.from)) continue;  // reported above
    const std::string interfaces = fmt::format("{}", fmt::join(incoming.good_interfaces, ", "));
    const std::string networks = fmt::format("{}", fmt::join(incoming.good_networks, ", "));
    findings.push_back(
        {.found = fmt::format("{} cannot reach {} through its interface {} ({}): {}", link.from_host,
                              link.to_host, link.interface, address, link.error),
         .expected =
             fmt::format("a reply, as through {}; libraries try every interface that is up", interfaces),
         .fix = fmt::format(
             "NCCL_SOCKET_IFNAME={}; mpirun --mca btl_tcp_if_include {} --mca oob_tcp_if_include {}; or "
             "ip link set {} down",
             interfaces, networks, networks, link.interface)});
  }
}

}  // namespace

std::vector<InterfaceFacts> list_addresses() {
  std::vector<InterfaceFacts> found;
  for (const dist::InterfaceAddress& entry : dist::list_addresses())
    if ((entry.flags & IFF_UP) != 0)
      found.push_back({entry.interface, entry.address, entry.network, (entry.flags & IFF_LOOPBACK) != 0});
  return found;
}

std::vector<std::string> list_interfaces() {
  std::vector<std::string> names;
  const std::unique_ptr<struct if_nameindex[], void (*)(struct if_nameindex*)> list(if_nameindex(),
                                                                                    if_freenameindex);
  for (std::size_t i = 0; list != nullptr && list[i].if_index != 0; ++i) names.emplace_back(list[i].if_name);
  return names;
}

PortProbes::PortProbes(std::vector<InterfaceFacts>& interfaces) {
  for (InterfaceFacts& interface : interfaces) {
    if (interface.is_loopback) continue;
    try {
      dist::Socket socket = dist::listen_at({interface.address, 0});
      interface.port = dist::local_port_of(socket);
      sockets_.push_back(std::move(socket));
    } catch (const UsageError&) {  // the address is not probed
    }
  }
}

void PortProbes::reply(const std::string& greeting) const {
  for (const dist::Socket& socket : sockets_)
    while (const std::optional<dist::Socket> peer = dist::accept_waiting(socket))
      dist::send_all(*peer, greeting, dist::Deadline(kConnectTimeout));
}

std::string greeting_of(const RankFacts& facts) {
  return fmt::format("convoy-doctor {} {} {:.6f}\n", facts.rank, facts.process, facts.clock);
}

std::vector<LinkFacts> probe_links(dist::Rendezvous& rendezvous, const std::vector<RankFacts>& ranks,
                                   const PortProbes* port_probes) {
  const RankFacts& me = ranks[static_cast<std::size_t>(rendezvous.info().rank)];
  Ranks others;  // the first rank of each other host
  for (const RankFacts& facts : ranks)
    if (port_probes != nullptr && facts.local_rank == 0 && facts.node != me.node) others.push_back(&facts);
  std::vector<std::vector<Probe>> probes(others.size());
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < others.size(); ++i)
    threads.emplace_back([&, i] { connect_to_host(me, *others[i], probes[i]); });
  for (std::thread& thread : threads) thread.join();

  rendezvous.barrier();  // all connections are open
  if (port_probes != nullptr) port_probes->reply(greeting_of(me));
  nlohmann::json local = nlohmann::json::array();
  for (std::vector<Probe>& of_host : probes)
    for (Probe& probe : of_host) {
      read_reply(probe);
      local.push_back(probe.link);
    }
  std::vector<LinkFacts> links;
  for (const std::string& text : rendezvous.all_gather(json_text(local)))
    for (const nlohmann::json& link : nlohmann::json::parse(text)) links.push_back(link.get<LinkFacts>());
  return links;
}

Findings check_network(const Examination& examination) {
  Findings findings;
  const auto hosts = by_host(examination.ranks);
  for (const auto& [node, host] : hosts) {
    check_interface_names(*host.front(), hosts.size() == 1, findings);
    const std::string master = value_at(host.front()->variables, "MASTER_ADDR");
    if (hosts.size() > 1 && is_loopback(master))
      findings.push_back(
          {.found = fmt::format("MASTER_ADDR={} on {} is a loopback address, but there are {} hosts", master,
                                host.front()->host, hosts.size()),
           .expected = "an address of rank 0's host that the other hosts can reach",
           .fix = "export MASTER_ADDR=<address of rank 0's host>, the same on all hosts"});
  }
  std::map<int, IncomingLinks> by_target;
  for (const LinkFacts& link : examination.links) {
    IncomingLinks& incoming = by_target[link.to];
    incoming.to_host = link.to_host;
    bool& reached = incoming.reached_from[link.from];
    reached = reached || link.error.empty();
    if (link.error.empty()) {
      incoming.good_interfaces.insert(link.interface);
      incoming.good_networks.insert(link.network);
    } else {
      incoming.broken[link.address].push_back(&link);
    }
  }
  for (const auto& [node, incoming] : by_target) check_links(incoming, examination.links, findings);
  return findings;
}

}  // namespace convoy::doctor
