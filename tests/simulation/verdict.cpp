#include "tests/simulation/verdict.h"

#include <regex>

namespace simulation {
namespace {

/// Adds the ranks of a text of format_ranks() such as "ranks 2, 3" or "ranks 0 to 15, 17".
void add_ranks(const std::string& text, std::set<int>& ranks) {
  static const std::regex kRange("([0-9]+)(?: to ([0-9]+))?");
  for (std::sregex_iterator found(text.begin(), text.end(), kRange), end; found != end; ++found) {
    const int first = std::stoi((*found)[1]);
    const int last = (*found)[2].matched ? std::stoi((*found)[2]) : first;
    for (int rank = first; rank <= last; ++rank) ranks.insert(rank);
  }
}

}  // namespace

std::optional<std::set<int>> culprits_in(const std::string& text) {
  std::set<int> culprits;
  // What describe() of rank_status.h and HostAgent say of a rank. Those that wait come before it, without a host.
  static const std::regex kDescribed(R"(rank ([0-9]+) on [a-z]+-[0-9]+ (?:has |was |is |\(process ))");
  for (std::sregex_iterator found(text.begin(), text.end(), kDescribed), end; found != end; ++found)
    culprits.insert(std::stoi((*found)[1]));
  if (!culprits.empty()) return culprits;
  // The errors of a rank that knows no verdict; the last clause counts.
  static const std::regex kErrors(
      R"((ranks? [0-9]+(?:(?:, | to )[0-9]+)*) (?:is|are) missing|waited \S+ s for (?:a TCP connection of )?)"
      R"((ranks? [0-9]+(?:(?:, | to )[0-9]+)*))"
      R"(|cannot reach (rank [0-9]+) by TCP|(rank [0-9]+) (?:has disconnected|has exited|has died|does not answer|exited before))");
  std::smatch last;
  for (std::sregex_iterator found(text.begin(), text.end(), kErrors), end; found != end; ++found)
    last = *found;
  if (last.empty()) return std::nullopt;
  for (std::size_t group = 1; group < last.size(); ++group)
    if (last[group].matched) add_ranks(last[group], culprits);
  return culprits;
}

}  // namespace simulation
