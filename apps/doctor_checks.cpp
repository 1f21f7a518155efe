#include "apps/doctor_checks.h"

#include <algorithm>
#include <map>

#include "apps/doctor_collectives.h"
#include "comm/rank_text.h"
#include "kernels/runtime/check.h"

namespace convoy::doctor {
namespace {

std::string fix_for(const CollectiveFacts& facts) {
  if (facts.error.find("PID namespace") != std::string::npos || facts.error.find("/fd/") != std::string::npos)
    return "ranks of one host share memory through /proc: start them as one user, in one PID namespace "
           "(docker run "
           "--pid=host, in Kubernetes shareProcessNamespace: true), or say --comm mpi or --comm gloo";
  if (facts.name == "nccl")
    return "NCCL_DEBUG=INFO convoy-doctor, which says what NCCL tried, or --device cpu";
  return "what else is found here, if anything, comes first; then --comm-timeout 120, and another --comm";
}

/// A link that moves wrong bytes.
std::string fix_for_wrong(const CollectiveFacts& facts) {
  if (facts.name == "nccl")
    return "NCCL_P2P_DISABLE=1; if that helps, turn off ACS (PCIe access control) in the firmware";
  return "do not train through it: try another --comm, and test the memory and network of that host";
}

}  // namespace

std::vector<std::vector<const RankFacts*>> by_host(const std::vector<RankFacts>& ranks) {
  std::vector<std::vector<const RankFacts*>> hosts;
  for (const RankFacts& facts : ranks) {
    const auto node = static_cast<std::size_t>(facts.node);
    if (hosts.size() <= node) hosts.resize(node + 1);
    hosts[node].push_back(&facts);
  }
  return hosts;
}

std::string names_of(const std::vector<const RankFacts*>& ranks) {
  std::vector<int> numbers;
  for (const RankFacts* facts : ranks) numbers.push_back(facts->rank);
  return text_of_ranks(numbers);
}

std::string variable_of(const RankFacts& facts, const std::string& name) {
  const auto found = facts.variables.find(name);
  return found == facts.variables.end() ? "" : found->second;
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

Findings check_collectives(const Examination& examination) {
  Findings findings;
  std::map<std::string, std::pair<std::vector<int>, const CollectiveFacts*>> errors;  // by text
  const std::string expected = expected_gather(static_cast<int>(examination.ranks.size()));
  for (const CollectiveFacts& facts : examination.collectives) {
    if (!facts.error.empty()) {
      auto& [ranks, example] = errors[fmt::format("{}: {}", facts.name, facts.error)];
      ranks.push_back(facts.rank);
      example = &facts;
      continue;
    }
    if (facts.gathered != expected)
      findings.push_back({.grade = Grade::error,
                          .found = fmt::format("rank {} on {} gathered {} by {}", facts.rank, facts.host,
                                               facts.gathered, facts.name),
                          .expected = expected,
                          .fix = fix_for_wrong(facts)});
    if (facts.wrong > 0)
      findings.push_back({.grade = Grade::error,
                          .found = fmt::format("rank {} on {} got {} wrong sums by {}", facts.rank,
                                               facts.host, facts.wrong, facts.name),
                          .expected = fmt::format("all {} right", facts.bytes / 4),
                          .fix = fix_for_wrong(facts)});
  }
  for (const auto& [text, who] : errors)
    findings.push_back(
        {.grade = Grade::error,
         .found = fmt::format("{} could not exchange data by {}", text_of_ranks(who.first), text),
         .expected = "an all-gather and an all-reduce of all ranks",
         .fix = fix_for(*who.second)});
  return findings;
}

Findings check_lonely(const RankFacts& facts) {
  Findings findings;
  const std::string master = variable_of(facts, "MASTER_ADDR");
  if (is_loopback(master)) {
    findings.push_back(
        {.found = fmt::format("MASTER_ADDR={} is this very host, {}, on every host", master, facts.host),
         .expected = "where ranks are on several hosts, an address of rank 0's that the others reach",
         .fix = "export MASTER_ADDR=<address of rank 0's host>, the same on all hosts"});
  } else if (facts.rank == 0 && !master.empty() &&
             master.find_first_not_of("0123456789.") == std::string::npos &&
             std::none_of(facts.interfaces.begin(), facts.interfaces.end(),
                          [&](const InterfaceFacts& interface) { return interface.address == master; })) {
    std::string mine;
    for (const InterfaceFacts& interface : facts.interfaces)
      if (!interface.is_loopback) mine += fmt::format("{}{}", mine.empty() ? "" : ", ", interface.address);
    findings.push_back(
        {.found = fmt::format("rank 0 is on {}, and MASTER_ADDR={} is no address of it", facts.host, master),
         .expected = mine.empty() ? "an interface that is up" : fmt::format("one of {}", mine),
         .fix = fmt::format("export MASTER_ADDR={}, the same on all hosts",
                            mine.empty() ? "<address>" : mine.substr(0, mine.find(',')))});
  }
  return findings;
}

Findings check_all(const Examination& examination) {
  Findings findings;
  for (const auto check : {check_launch, check_network, check_collectives, check_gpus, check_hosts})
    for (Finding& finding : check(examination)) findings.push_back(std::move(finding));
  std::stable_partition(findings.begin(), findings.end(),
                        [](const Finding& finding) { return finding.grade == Grade::error; });
  return findings;
}

ExitCode verdict(const Findings& findings) {
  const auto first = std::find_if(findings.begin(), findings.end(),
                                  [](const Finding& finding) { return finding.grade == Grade::error; });
  return first == findings.end() ? ExitCode::ok : first->code;
}

}  // namespace convoy::doctor
