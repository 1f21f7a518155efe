#include "comm/agreement.h"

#include <xxhash.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "comm/broadcast.h"
#include "comm/rank_text.h"
#include "kernels/runtime/check.h"

namespace convoy {
namespace {

constexpr std::size_t kMostPrinted = 3;  // differences in one message

/// A line a claim; neither part holds a tab or a line's end.
std::string text_of_claims(const std::vector<Claim>& claims) {
  std::string text;
  for (const Claim& claim : claims) {
    check((claim.name + claim.value).find_first_of("\t\n") == std::string::npos,
          "a claim with a tab or a line's end: {}", claim.name);
    text += claim.name + '\t' + claim.value + '\n';
  }
  return text;
}

std::vector<Claim> parse_claims(const std::string& text) {
  std::vector<Claim> claims;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    const std::size_t tab = line.find('\t');
    claims.push_back({line.substr(0, tab), line.substr(tab + 1)});
  }
  return claims;
}

/// "--lr 0.2, rank 0 has 0.1", a difference each, in rank 0's order.
std::vector<std::string> differences(const std::vector<Claim>& expected, const std::vector<Claim>& found) {
  std::map<std::string_view, std::string_view> by_name;
  for (const Claim& claim : found) by_name[claim.name] = claim.value;
  std::vector<std::string> all;
  for (const Claim& claim : expected) {
    const auto place = by_name.find(claim.name);
    if (place == by_name.end()) {
      all.push_back(fmt::format("no {}, rank 0 has {}", claim.name, claim.value));
      continue;
    }
    if (place->second != claim.value)
      all.push_back(fmt::format("{} {}, rank 0 has {}", claim.name, place->second, claim.value));
    by_name.erase(place);
  }
  for (const auto& [name, value] : by_name) all.push_back(fmt::format("{} {}, rank 0 has none", name, value));
  return all;
}

/// "" where all agree.
std::string verdict_on(const std::vector<std::string>& by_rank) {
  const std::vector<Claim> expected = parse_claims(by_rank.front());
  std::vector<int> ranks;
  std::string first;
  for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
    if (by_rank[rank] == by_rank.front()) continue;
    ranks.push_back(static_cast<int>(rank));
    if (ranks.size() > 1) continue;
    std::vector<std::string> all = differences(expected, parse_claims(by_rank[rank]));
    if (all.empty()) all.emplace_back("the same in another order");
    const std::size_t more = all.size() - std::min(all.size(), kMostPrinted);
    all.resize(all.size() - more);
    first = fmt::format("rank {} has {}", rank, fmt::join(all, "; "));
    if (more > 0) first += fmt::format("; and {} more", more);
  }
  if (ranks.empty()) return "";
  return ranks.size() == 1 ? first : fmt::format("{} ({} differ from rank 0)", first, text_of_ranks(ranks));
}

/// What rank 0 makes of everybody's text, on every rank.
template <class Judge>
std::string judge_together(Communicator& comm, const std::string& mine, Judge&& judge) {
  const std::vector<std::string> by_rank = comm.gather(mine);
  return broadcast_text(comm, comm.rank() == 0 ? judge(by_rank) : "");
}

std::string hashes_of(const std::vector<NamedParameter>& parameters) {
  std::string hashes;
  for (const NamedParameter& parameter : parameters) {
    const Tensor& value = parameter.variable.value();
    const Tensor host = value.to(value.device().host());
    const View bytes = host.view();
    hashes += fmt::format("{:016x}\n", XXH64(bytes.data, bytes.bytes(), 0));
  }
  return hashes;
}

}  // namespace

std::vector<Claim> claims_of(const Module& model) {
  std::vector<Claim> claims;
  const auto add = [&](const std::string& name, const Tensor& tensor) {
    claims.push_back({name, fmt::format("{} {}", name_of(tensor.dtype()), tensor.shape().text())});
  };
  for (const NamedParameter& parameter : model.parameters()) add(parameter.name, parameter.variable.value());
  for (const NamedBuffer& buffer : model.buffers()) add(buffer.name, buffer.tensor);
  return claims;
}

void check_same_claims(Communicator& comm, const std::vector<Claim>& mine) {
  const std::string verdict = judge_together(comm, text_of_claims(mine), verdict_on);
  check(verdict.empty(), "ranks do not agree: {}", verdict);
}

void check_replicas(Communicator& comm, const std::vector<NamedParameter>& parameters,
                    std::string_view when) {
  const auto judge = [&](const std::vector<std::string>& by_rank) -> std::string {
    for (std::size_t rank = 1; rank < by_rank.size(); ++rank) {
      if (by_rank[rank] == by_rank.front()) continue;
      const auto [ours, theirs] = std::ranges::mismatch(by_rank.front(), by_rank[rank]);
      const auto line = std::count(by_rank.front().begin(), ours, '\n');
      return fmt::format("{} of rank {} is the first to differ from rank 0's",
                         parameters[static_cast<std::size_t>(line)].name, rank);
    }
    return "";
  };
  const std::string verdict = judge_together(comm, hashes_of(parameters), judge);
  if (!verdict.empty()) fail<PeerError>("replicas have drifted apart {}: {}", when, verdict);
}

}  // namespace convoy
