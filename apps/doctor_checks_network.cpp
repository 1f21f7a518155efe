// Interfaces, and ways between hosts.
#include <algorithm>
#include <map>
#include <set>
#include <sstream>

#include "apps/doctor_checks.h"
#include "kernels/runtime/check.h"

namespace convoy::doctor {
namespace {

bool has_interface(const RankFacts& facts, const std::string& name, bool is_whole) {
  return std::any_of(
      facts.interface_names.begin(), facts.interface_names.end(),
      [&](const std::string& known) { return is_whole ? known == name : known.starts_with(name); });
}

std::string list_of(const std::vector<std::string>& texts) {
  std::string list;
  for (const std::string& text : texts) list += (list.empty() ? "" : ", ") + text;
  return list;
}

/// NCCL takes beginnings of names, "=eth0" for a whole one, "^docker" for all but those; gloo one whole name.
void check_interface_names(const RankFacts& facts, bool is_alone, Findings& findings) {
  for (const char* variable : {"NCCL_SOCKET_IFNAME", "GLOO_SOCKET_IFNAME"}) {
    std::string value = variable_of(facts, variable);
    const bool is_nccl = variable[0] == 'N';
    if (value.empty() || (is_nccl && value[0] == '^')) continue;
    const bool is_whole = !is_nccl || value[0] == '=';
    if (is_nccl && is_whole) value.erase(0, 1);
    std::istringstream parts(value);
    bool found = false;
    for (std::string part; std::getline(parts, part, ',');)
      found = found || has_interface(facts, part, is_whole);
    if (found) continue;
    const bool is_needed = is_nccl ? facts.gpu.index >= 0 : !is_alone && facts.met_by != "mpi";
    findings.push_back(
        {.grade = is_needed ? Grade::error : Grade::warning,
         .found = fmt::format("{}={} names no interface of {}", variable, variable_of(facts, variable),
                              facts.host),
         .expected = fmt::format("one of {}", list_of(facts.interface_names)),
         .fix = fmt::format("unset {}, or set it to the one that reaches the other hosts", variable)});
  }
}

/// All that is known of how hosts reach one of them.
struct Ways {
  std::string to_host;
  std::map<std::string, std::vector<const LinkFacts*>> broken;  // by address
  std::set<std::string> good_interfaces, good_networks;
  std::map<int, bool> reached_from;  // by node: by any address
};

void check_ways(const Ways& ways, const std::vector<LinkFacts>& links, Findings& findings) {
  std::set<std::string> cut_off;
  for (const LinkFacts& link : links)
    if (link.to_host == ways.to_host && !ways.reached_from.at(link.from)) cut_off.insert(link.from_host);
  for (const std::string& from : cut_off)
    findings.push_back(
        {.grade = Grade::error,
         .found = fmt::format("{} reaches {} by none of its addresses", from, ways.to_host),
         .expected = "a network that joins them, and no firewall between ranks",
         .fix = fmt::format("from {}: ping {}; then open all TCP ports between the two (ufw allow from "
                            "ADDRESS, or the cloud's security group)",
                            from, ways.to_host)});
  for (const auto& [address, failures] : ways.broken) {
    const LinkFacts& link = *failures.front();
    if (!ways.reached_from.at(link.from)) continue;  // said already
    const std::string interfaces = list_of({ways.good_interfaces.begin(), ways.good_interfaces.end()});
    const std::string networks = list_of({ways.good_networks.begin(), ways.good_networks.end()});
    findings.push_back(
        {.found = fmt::format("{} does not reach {} over its {} ({}): {}", link.from_host, link.to_host,
                              link.interface, address, link.error),
         .expected =
             fmt::format("an answer, as from its {}; libraries try every interface that is up", interfaces),
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
    const std::string master = variable_of(*host.front(), "MASTER_ADDR");
    if (hosts.size() > 1 && is_loopback(master))
      findings.push_back(
          {.found =
               fmt::format("MASTER_ADDR={} on {}, one of {} hosts", master, host.front()->host, hosts.size()),
           .expected = "an address of rank 0's host that the others reach: this is each host itself",
           .fix = "export MASTER_ADDR=<address of rank 0's host>, the same on all hosts"});
  }
  std::map<int, Ways> by_target;
  for (const LinkFacts& link : examination.links) {
    Ways& ways = by_target[link.to];
    ways.to_host = link.to_host;
    bool& reached = ways.reached_from[link.from];
    reached = reached || link.error.empty();
    if (link.error.empty()) {
      ways.good_interfaces.insert(link.interface);
      ways.good_networks.insert(link.network);
    } else {
      ways.broken[link.address].push_back(&link);
    }
  }
  for (const auto& [node, ways] : by_target) check_ways(ways, examination.links, findings);
  return findings;
}

}  // namespace convoy::doctor
