#include "convoy/comm/bootstrap/host.h"

#include <limits.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <sstream>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {

HostId this_host() {
  HostId host;
  char text[HOST_NAME_MAX + 1] = {};
  if (gethostname(text, sizeof text - 1) == 0) host.name = text;
  if (host.name.empty()) host.name = "localhost";
  std::ifstream("/proc/sys/kernel/random/boot_id") >> host.boot;
  std::error_code unknown;
  host.network = std::filesystem::read_symlink("/proc/self/ns/net", unknown);
  host.processes = std::filesystem::read_symlink("/proc/self/ns/pid", unknown);
  return host;
}

std::string to_string(const HostId& host) {
  return fmt::format("{}\n{}\n{}\n{}", host.name, host.boot, host.network, host.processes);
}

HostId parse_host(const std::string& text) {
  std::istringstream lines(text);
  HostId host;
  for (std::string* part : {&host.name, &host.boot, &host.network, &host.processes})
    if (!std::getline(lines, *part) && part != &host.processes)
      fail<PeerError>("found '{}', expected a host description", text);
  return host;
}

std::vector<RankInfo> make_rank_infos(std::span<const HostId> by_rank, const std::string& source) {
  std::map<HostId, std::size_t> nodes;
  std::map<std::string, int> hosts_named;
  std::vector<int> ranks_of_host;
  std::vector<RankInfo> infos;
  for (std::size_t rank = 0; rank < by_rank.size(); ++rank) {
    const auto [host, is_new] = nodes.try_emplace(by_rank[rank], ranks_of_host.size());
    if (is_new) {
      ranks_of_host.push_back(0);
      ++hosts_named[host->first.name];
    }
    const std::size_t node = host->second;
    infos.push_back({.rank = static_cast<int>(rank),
                     .world_size = static_cast<int>(by_rank.size()),
                     .local_rank = ranks_of_host[node]++,
                     .node = static_cast<int>(node),
                     .host = by_rank[rank].name,
                     .source = source});
  }
  for (RankInfo& info : infos) {
    info.local_world_size = ranks_of_host[static_cast<std::size_t>(info.node)];
    info.nodes = static_cast<int>(nodes.size());
    if (hosts_named[info.host] > 1) info.host += fmt::format(" (node {})", info.node);
  }
  return infos;
}

}  // namespace convoy::dist
