// HostRanks: the processes of one host that read a data set together.
#pragma once

#include <functional>
#include <string>
#include <vector>

namespace convoy::data {

/// The ranks of a host, seen from one of them. By default, one rank alone.
struct HostRanks {
  int rank = 0;  // of this process among them, from 0
  int size = 1;  // number of them
  /// Returns the texts of all of them, by rank. Blocks until all have called it. Throws PeerError if one
  /// fails.
  std::function<std::vector<std::string>(const std::string& local)> all_gather =
      [](const std::string& local) { return std::vector<std::string>{local}; };
};

}  // namespace convoy::data
