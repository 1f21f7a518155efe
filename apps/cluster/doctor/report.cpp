// The facts as JSON, all checks, and the report.
#include <fmt/ranges.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <set>

#include "convoy/apps/cluster/doctor/doctor.h"
#include "convoy/comm/core/collective.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_integer.h"
#include "convoy/kernels/base/json_text.h"
#include "convoy/kernels/runtime/memory/memory.h"
#include "convoy/version.h"

namespace convoy::doctor {
namespace {

constexpr int kSchema = 1;

std::string row(const std::string& name, const std::string& text) {
  return text.empty() ? "" : fmt::format("  {:<12}{}\n", name, text);
}

std::string format_limit(std::uint64_t limit, bool is_bytes) {
  if (limit == std::numeric_limits<std::uint64_t>::max()) return "no limit";
  return is_bytes ? format_bytes(limit) : std::to_string(limit);
}

std::string gpus_of(const GpuRankFacts& gpu) {
  if (gpu.names.empty()) return fmt::format("none: {}", gpu.reason);
  std::string text;
  for (const std::string& name : std::set<std::string>(gpu.names.begin(), gpu.names.end()))
    text += fmt::format("{}{} x {}", text.empty() ? "" : "; ", std::ranges::count(gpu.names, name), name);
  return fmt::format("{}; driver for CUDA {}, built for {} with code for {}", text, gpu.supports, gpu.needs,
                     gpu.code);
}

std::string format_rank(const RankFacts& facts) {
  std::string text = fmt::format("process {}, cores {}", facts.process, format_cores(facts.cpu.cores));
  if (const auto visible = facts.variables.find("CUDA_VISIBLE_DEVICES"); visible != facts.variables.end())
    text += ", CUDA_VISIBLE_DEVICES=" + visible->second;
  if (facts.gpu.index >= 0)
    text += fmt::format(", cuda:{} with {} of {} free", facts.gpu.index, format_bytes(facts.gpu.free_bytes),
                        format_bytes(facts.gpu.bytes));
  return text;
}

std::string format_host(const Ranks& host, double clock) {
  const RankFacts& first = *host.front();
  std::vector<std::string> interfaces;
  for (const InterfaceFacts& interface : first.interfaces)
    interfaces.push_back(fmt::format("{} {} in {}", interface.name, interface.address, interface.network));
  std::string cpu = fmt::format("{}, {} cores", first.cpu.processor, first.cpu.machine_cores);
  if (first.cpu.quota > 0) cpu += fmt::format(", CPU quota {:.1f}", first.cpu.quota);
  std::string text = fmt::format("\nhost {}: {}, {}\n", first.node, first.host, rank_list(host));
  text += row("system", fmt::format("{}; clock {:+.3f} s", first.system, first.clock - clock));
  text += row("processor", cpu);
  text += row("memory", fmt::format("{} of {} free", format_bytes(first.cpu.memory_available),
                                    format_bytes(first.cpu.memory_bytes)));
  text += row("/dev/shm", first.limits.shm_bytes == 0
                              ? "none"
                              : fmt::format("{} of {} free", format_bytes(first.limits.shm_free),
                                            format_bytes(first.limits.shm_bytes)));
  text += row("limits",
              fmt::format("{} open files, {} of locked memory", format_limit(first.limits.open_files, false),
                          format_limit(first.limits.locked_bytes, true)));
  text += row("network", fmt::format("{}", fmt::join(interfaces, "; ")));
  text += row("GPUs", gpus_of(first.gpu));
  for (const RankFacts* rank : host) text += row(fmt::format("rank {}", rank->rank), format_rank(*rank));
  return text;
}

}  // namespace

CONVOY_DEFINE_JSON(InterfaceFacts, name, address, network, is_loopback, port)
CONVOY_DEFINE_JSON(CpuFacts, processor, machine_cores, cores, quota, memory_bytes, memory_available)
CONVOY_DEFINE_JSON(LimitFacts, open_files, locked_bytes, shm_bytes, shm_free, has_rdma)
CONVOY_DEFINE_JSON(GpuRankFacts, is_built_in, needs, supports, code, reason, installed, names, uuids, index,
                   bytes, free_bytes)
CONVOY_DEFINE_JSON(RankFacts, rank, world_size, local_rank, node, host, host_name, machine, system, process,
                   parent, met_by, source, program, version, libraries, variables, clock, cpu, limits, gpu,
                   interfaces, interface_names)
CONVOY_DEFINE_JSON(LinkFacts, from, to, from_host, to_host, interface, address, network, error)
CONVOY_DEFINE_JSON(CollectiveFacts, rank, host, name, gathered, bytes, seconds, wrong, error)

std::map<int, Ranks> by_host(const std::vector<RankFacts>& ranks) {
  std::map<int, Ranks> hosts;
  for (const RankFacts& facts : ranks) hosts[facts.node].push_back(&facts);
  return hosts;
}

std::string rank_list(const Ranks& ranks) {
  std::vector<int> numbers;
  for (const RankFacts* facts : ranks) numbers.push_back(facts->rank);
  return dist::format_ranks(numbers);
}

bool is_loopback(const std::string& address) {
  return address == "localhost" || address == "::1" || address.starts_with("127.");
}

Findings check_all(const Examination& examination) {
  Findings findings;
  for (const auto check : {check_launch, check_network, check_collectives, check_gpus, check_hosts})
    for (Finding& finding : check(examination)) findings.push_back(std::move(finding));
  std::ranges::stable_partition(findings,
                                [](const Finding& finding) { return finding.grade == Grade::error; });
  return findings;
}

ExitCode verdict(const Findings& findings) {
  const auto first = std::ranges::find(findings, Grade::error, &Finding::grade);
  return first == findings.end() ? ExitCode::ok : first->code;
}

std::string format_facts(const Examination& examination) {
  const RankFacts& first = examination.ranks.front();
  const auto hosts = by_host(examination.ranks);
  std::string text = fmt::format("convoy-doctor {}: {} {} on {} {}; {}\n", kVersion, first.world_size,
                                 first.world_size == 1 ? "rank" : "ranks", hosts.size(),
                                 hosts.size() == 1 ? "host" : "hosts", first.source);
  text += fmt::format("{}\n", fmt::join(first.libraries, ", "));
  for (const auto& [node, host] : hosts) text += format_host(host, first.clock);
  return text;
}

std::string format_gather(const CollectiveFacts& facts) {
  const std::string who = fmt::format("rank {} on {}, {}", facts.rank, facts.host, facts.name);
  if (!facts.error.empty()) return fmt::format("{}: {}\n", who, facts.error);
  return fmt::format("{}: all-gather {}\n", who, facts.gathered);
}

std::string format_exchanges(const Examination& examination) {
  std::string text;
  for (const LinkFacts& link : examination.links)
    text += fmt::format("from {} to {}, {} {}: {}\n", link.from_host, link.to_host, link.interface,
                        link.address, link.error.empty() ? "reached" : link.error);
  const int world_size = static_cast<int>(examination.ranks.size());
  for (const CollectiveFacts& facts : examination.collectives) {
    if (world_size == 1 || facts.rank != 0 || !facts.error.empty())
      continue;  // a single rank transfers nothing
    const bool is_correct = std::ranges::all_of(examination.collectives, [&](const auto& of) {
      return of.name != facts.name || (of.wrong == 0 && of.error.empty());
    });
    text += fmt::format("{}: all-reduce of {} in {:.3f} ms: algbw {:.2f} GB/s, busbw {:.2f} GB/s; {}\n",
                        facts.name, format_bytes(static_cast<std::size_t>(facts.bytes)), facts.seconds * 1e3,
                        algorithm_bandwidth(facts) / 1e9, bus_bandwidth(facts, world_size) / 1e9,
                        is_correct ? "all sums correct on all ranks" : "some sums are WRONG");
  }
  return text;
}

std::string format_findings(const Findings& findings) {
  if (findings.empty()) return "no problems found\n";
  std::string text;
  int number = 0;
  for (const Finding& finding : findings)
    text += fmt::format("{}. {}: {}\n   expected: {}\n   fix: {}\n", ++number,
                        finding.grade == Grade::error ? "error" : "warning", finding.found, finding.expected,
                        finding.fix);
  return text;
}

std::string json_of(const Examination& examination, const Findings& findings) {
  nlohmann::ordered_json all{{"schema", kSchema},
                             {"version", kVersion},
                             {"world_size", examination.ranks.size()},
                             {"exit_code", static_cast<int>(verdict(findings))}};
  all["ranks"] = nlohmann::json(examination.ranks);
  all["links"] = nlohmann::json(examination.links);
  all["collectives"] = nlohmann::json::array();
  for (const CollectiveFacts& facts : examination.collectives) {
    nlohmann::json json = facts;
    json["algorithm_bandwidth"] = algorithm_bandwidth(facts);
    json["bus_bandwidth"] = bus_bandwidth(facts, static_cast<int>(examination.ranks.size()));
    all["collectives"].push_back(nlohmann::ordered_json(json));
  }
  all["findings"] = nlohmann::json::array();
  for (const Finding& finding : findings)
    all["findings"].push_back(
        nlohmann::ordered_json{{"grade", finding.grade == Grade::error ? "error" : "warning"},
                               {"found", finding.found},
                               {"expected", finding.expected},
                               {"fix", finding.fix}});
  return json_text(all, 2) + "\n";
}

}  // namespace convoy::doctor
