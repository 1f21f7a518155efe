// Checks of the network: interfaces, and links between hosts.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "convoy/apps/cluster/doctor/checks.h"
#include "convoy/kernels/base/check.h"

namespace convoy::doctor {
namespace {

/// Returns whether the rank has an interface called `name`, or beginning with `name` unless `is_whole`.
bool has_interface(const RankFacts& facts, const std::string& name, bool is_whole) {
  return std::any_of(
      facts.interface_names.begin(), facts.interface_names.end(),
      [&](const std::string& known) { return is_whole ? known == name : known.starts_with(name); });
}

/// Joins texts with ", ".
std::string list_of(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + text;
  return list;
}

/// NCCL accepts prefixes of names, "=eth0" for an exact name, and "^docker" to exclude a prefix. CONVOY_INTERFACE is
/// one exact name.
void check_interface_names(const RankFacts& facts, bool is_alone, Findings& findings) {
  for (const char* variable : {"NCCL_SOCKET_IFNAME", "CONVOY_INTERFACE"}) {
    std::string value = environment_variable(facts, variable);
    const bool is_nccl = variable[0] == 'N';
    if (value.empty() || (is_nccl && value[0] == '^')) continue;
    const bool is_whole = !is_nccl || value[0] == '=';
    if (is_nccl && is_whole) value.erase(0, 1);
    std::istringstream parts(value);
    bool found = false;
    for (std::string part; std::getline(parts, part, ',');)
      found = found || has_interface(facts, part, is_whole);
    if (found) continue;
    const bool is_needed = is_nccl ? facts.gpu.index >= 0 : !is_alone;
    findings.push_back(
        {.grade = is_needed ? Grade::error : Grade::warning,
         .found = fmt::format("{}={} names no interface of {}", variable,
                              environment_variable(facts, variable), facts.host),
         .expected = fmt::format("one of {}", list_of(facts.interface_names)),
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
    const std::string interfaces =
        list_of({incoming.good_interfaces.begin(), incoming.good_interfaces.end()});
    const std::string networks = list_of({incoming.good_networks.begin(), incoming.good_networks.end()});
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

Findings check_network(const Examination& examination) {
  Findings findings;
  const auto hosts = by_host(examination.ranks);
  for (const auto& host : hosts) {
    if (host.empty()) continue;
    check_interface_names(*host.front(), hosts.size() == 1, findings);
    const std::string master = environment_variable(*host.front(), "MASTER_ADDR");
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
