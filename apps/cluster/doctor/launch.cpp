// The launch: world size, versions of programs and libraries, host names and clocks.
#include <algorithm>
#include <array>
#include <cmath>

#include "convoy/apps/cluster/doctor/doctor.h"
#include "convoy/apps/common/text.h"
#include "convoy/comm/cluster/net/secret.h"
#include "convoy/comm/core/endpoint.h"
#include "convoy/kernels/base/check.h"

namespace convoy::doctor {
namespace {

constexpr double kMaxClockDifference = 2;  // seconds; ranks read their clocks within a fraction of it

/// The variables in which launchers pass the world size, in order of precedence.
constexpr std::array kWorldSizes = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"};

bool is_launcher(const std::string& parent) {
  constexpr std::array kNames = {"mpirun",  "mpiexec", "mpiexec.hydra",   "orterun",  "orted",
                                 "prterun", "prted",   "hydra_pmi_proxy", "pmi_proxy"};
  return std::ranges::find(kNames, parent) != kNames.end();
}

void check_world_sizes(const RankFacts& facts, Findings& findings) {
  const std::string winner = value_at(facts.variables, "WORLD_SIZE").empty() ? "--rendezvous" : "WORLD_SIZE";
  bool any = false;
  for (const char* name : kWorldSizes) {
    const std::string text = value_at(facts.variables, name);
    any = any || !text.empty();
    // A world size of 1 belongs to an outer launcher (environment.h).
    const int size = number_in<int>(text).value_or(0);
    if (text.empty() || size == facts.world_size || size == 1) continue;
    const bool is_alone = facts.world_size == 1 && size > 1;
    findings.push_back(
        {.grade = is_alone ? Grade::error : Grade::warning,
         .found = is_alone ? fmt::format("rank {} on {} has world size 1 ({}), but {} is {}", facts.rank,
                                         facts.host, facts.source, name, text)
                           : fmt::format("the world size is {} ({}), but {} is {}", facts.world_size,
                                         facts.source, name, text),
         .expected =
             is_alone
                 ? fmt::format("a world size of {}; now each process trains alone", text)
                 : std::string("the same world size, unless an outer launcher has another one on purpose"),
         .fix = winner == "WORLD_SIZE"
                    ? "unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE, which take precedence"
                    : "use --rendezvous auto"});
  }
  if (any || facts.world_size > 1 || !is_launcher(facts.parent)) return;
  const auto mpi = std::ranges::find_if(
      facts.libraries, [](const std::string& text) { return text.find("MPI") != std::string::npos; });
  findings.push_back(
      {.grade = Grade::error,
       .found = fmt::format("{} started this process on {} without a rank or a world size", facts.parent,
                            facts.host),
       .expected = "variables OMPI_COMM_WORLD_* or PMI_*; without them, each process trains alone",
       .fix = fmt::format(
           "start it with the mpirun of {}, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
           mpi == facts.libraries.end() ? "the MPI library that this program was built with" : *mpi)});
}

/// Without a secret, any process that reaches the port of rank 0 is admitted as a rank.
void check_secret(const RankFacts& facts, Findings& findings) {
  const std::size_t begin = facts.source.find("tcp://");
  if (begin == std::string::npos || facts.world_size == 1 ||
      !value_at(facts.variables, dist::kSecretVariable).empty())
    return;
  const std::string address = facts.source.substr(begin, facts.source.find_first_of(" ,;", begin) - begin);
  if (is_loopback(dist::parse_endpoint(address.substr(6)).host)) return;
  findings.push_back(
      {.found = fmt::format("the ranks find each other at {} without {}", address, dist::kSecretVariable),
       .expected = "a secret of the job; without it, any process that reaches this port can take part",
       .fix = fmt::format("run export {}=$(openssl rand -hex 16) once, and pass the same value to all ranks; "
                          "or use convoy-launch, which does so",
                          dist::kSecretVariable)});
}

/// Returns the name of a library without its version.
std::string library_name(const std::string& library) {
  return library.substr(0, library.find_first_of("0123456789"));
}

void check_versions(const std::vector<RankFacts>& ranks, Findings& findings) {
  const RankFacts& first = ranks.front();
  for (const RankFacts& facts : ranks) {
    const std::string who = fmt::format("rank {} on {}", facts.rank, facts.host);
    if (facts.version != first.version) {
      findings.push_back(
          {.grade = Grade::error,
           .found = fmt::format("{} runs convoy {}, rank 0 runs {}", who, facts.version, first.version),
           .expected = "the same version",
           .fix = fmt::format("install convoy {} on {}", first.version, facts.host)});
    } else if (facts.program != first.program) {
      findings.push_back(
          {.found = fmt::format("{} runs a different executable than rank 0 (hash {}, rank 0 has {})", who,
                                facts.program, first.program),
           .expected = "the same build, or builds of the same sources",
           .fix = fmt::format("copy the programs from {} to {}", first.host, facts.host)});
    }
    for (const std::string& library : facts.libraries)
      for (const std::string& other : first.libraries) {
        if (library_name(library) != library_name(other) || library == other) continue;
        const bool communicates = library_name(library).find("NCCL") != std::string::npos ||
                                  library_name(library).find("MPI") != std::string::npos;
        findings.push_back({.grade = communicates ? Grade::error : Grade::warning,
                            .found = fmt::format("{} has {}, rank 0 has {}", who, library, other),
                            .expected = communicates ? "the same version of the communication library"
                                                     : "the same version, for equal results on all ranks",
                            .fix = fmt::format("install {} on {}", other, facts.host)});
      }
  }
}

void check_names_and_clocks(const std::vector<RankFacts>& ranks, Findings& findings) {
  Ranks earlier;  // the first rank of each host before
  for (const auto& [node, host] : by_host(ranks)) {
    const RankFacts& facts = *host.front();
    const auto other = std::ranges::find_if(earlier, [&](const RankFacts* each) {
      return each->machine == facts.machine || each->host_name == facts.host_name;
    });
    if (other != earlier.end() && (*other)->machine == facts.machine)
      findings.push_back(
          {.found = fmt::format("hosts {} and {} are containers of one machine ({}), which exchange data "
                                "through the network",
                                (*other)->node, node, facts.host_name),
           .expected =
               "containers that share memory, which is faster: with one network and one PID namespace",
           .fix =
               "docker run --network=host --pid=host; Kubernetes: one pod with shareProcessNamespace: true"});
    else if (other != earlier.end())
      findings.push_back(
          {.found = fmt::format("hosts {} and {} are both called {}", (*other)->node, node, facts.host_name),
           .expected = "distinct host names, for messages and mpirun host lists",
           .fix = "hostnamectl set-hostname NAME, or docker run --hostname NAME"});
    earlier.push_back(&facts);
    const double ahead = facts.clock - ranks.front().clock;
    if (std::abs(ahead) > kMaxClockDifference)
      findings.push_back(
          {.found = fmt::format("the clock of {} is {:.1f} s {} that of {}", facts.host, std::abs(ahead),
                                ahead > 0 ? "ahead of" : "behind", ranks.front().host),
           .expected = "synchronized clocks, for logs, file times and certificates",
           .fix = fmt::format("run timedatectl set-ntp true on {}", facts.host)});
  }
}

}  // namespace

Findings check_launch(const Examination& examination) {
  Findings findings;
  check_world_sizes(examination.ranks.front(), findings);
  check_secret(examination.ranks.front(), findings);
  check_versions(examination.ranks, findings);
  check_names_and_clocks(examination.ranks, findings);
  return findings;
}

Findings check_failed_rendezvous(const RankFacts& facts) {
  Findings findings;
  const std::string master = value_at(facts.variables, "MASTER_ADDR");
  if (is_loopback(master)) {
    findings.push_back(
        {.found = fmt::format("MASTER_ADDR={} is a loopback address, which is {} itself", master, facts.host),
         .expected = "for ranks on several hosts, an address of rank 0's host that the others can reach",
         .fix = "export MASTER_ADDR=<address of rank 0's host>, the same on all hosts"});
  } else if (facts.rank == 0 && !master.empty() &&
             master.find_first_not_of("0123456789.") == std::string::npos &&
             std::ranges::find(facts.interfaces, master, &InterfaceFacts::address) ==
                 facts.interfaces.end()) {
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

}  // namespace convoy::doctor
