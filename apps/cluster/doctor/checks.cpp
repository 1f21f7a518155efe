#include "convoy/apps/cluster/doctor/checks.h"

#include <algorithm>
#include <map>

#include "convoy/apps/cluster/doctor/collectives.h"
#include "convoy/comm/core/rank_text.h"
#include "convoy/kernels/base/check.h"

namespace convoy::doctor {
namespace {

/// Returns the advice for a collective that failed.
std::string fix_for_failure(const CollectiveFacts& facts) {
  if (facts.error.find("PID namespace") != std::string::npos || facts.error.find("/fd/") != std::string::npos)
    return "ranks of one host share memory through /proc: start them as the same user in one PID namespace "
           "(docker run --pid=host; Kubernetes: shareProcessNamespace: true), or use --comm mpi or tcp";
  if (facts.name == "nccl")
    return "run NCCL_DEBUG=INFO convoy-doctor to see what NCCL tried, or use --device cpu";
  return "fix the other problems first; then try --comm-timeout 120 or another --comm";
}

/// Returns the advice for a collective with wrong results.
std::string fix_for_wrong_result(const CollectiveFacts& facts) {
  if (facts.name == "nccl")
    return "set NCCL_P2P_DISABLE=1; if that helps, disable ACS (PCIe access control) in the firmware";
  return "do not train with this backend: try another --comm, and test the memory and network of that host";
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

std::string rank_list(const std::vector<const RankFacts*>& ranks) {
  std::vector<int> numbers;
  for (const RankFacts* facts : ranks) numbers.push_back(facts->rank);
  return dist::format_ranks(numbers);
}

std::string environment_variable(const RankFacts& facts, const std::string& name) {
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
                          .found = fmt::format("rank {} on {} gathered {} with {}", facts.rank, facts.host,
                                               facts.gathered, facts.name),
                          .expected = expected,
                          .fix = fix_for_wrong_result(facts)});
    if (facts.wrong > 0)
      findings.push_back({.grade = Grade::error,
                          .found = fmt::format("rank {} on {} received {} wrong sums with {}", facts.rank,
                                               facts.host, facts.wrong, facts.name),
                          .expected = fmt::format("{} correct sums", facts.bytes / 4),
                          .fix = fix_for_wrong_result(facts)});
  }
  for (const auto& [text, who] : errors)
    findings.push_back(
        {.grade = Grade::error,
         .found = fmt::format("{} could not exchange data with {}", dist::format_ranks(who.first), text),
         .expected = "a successful all-gather and all-reduce",
         .fix = fix_for_failure(*who.second)});
  return findings;
}

Findings check_failed_rendezvous(const RankFacts& facts) {
  Findings findings;
  const std::string master = environment_variable(facts, "MASTER_ADDR");
  if (is_loopback(master)) {
    findings.push_back(
        {.found = fmt::format("MASTER_ADDR={} is a loopback address, which is {} itself", master, facts.host),
         .expected = "for ranks on several hosts, an address of rank 0's host that the others can reach",
         .fix = "export MASTER_ADDR=<address of rank 0's host>, the same on all hosts"});
  } else if (facts.rank == 0 && !master.empty() &&
             master.find_first_not_of("0123456789.") == std::string::npos &&
             std::none_of(facts.interfaces.begin(), facts.interfaces.end(),
                          [&](const InterfaceFacts& interface) { return interface.address == master; })) {
    std::string local;
    for (const InterfaceFacts& interface : facts.interfaces)
      if (!interface.is_loopback) local += fmt::format("{}{}", local.empty() ? "" : ", ", interface.address);
    findings.push_back(
        {.found = fmt::format("rank 0 runs on {}, but MASTER_ADDR={} is not an address of this host",
                              facts.host, master),
         .expected = local.empty() ? "an interface that is up" : fmt::format("one of {}", local),
         .fix = fmt::format("export MASTER_ADDR={}, the same on all hosts",
                            local.empty() ? "<address>" : local.substr(0, local.find(',')))});
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
