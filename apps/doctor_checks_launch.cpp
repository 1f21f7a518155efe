// Who started the ranks, which programs and libraries they are, and what their hosts call themselves.
#include <algorithm>
#include <array>
#include <charconv>
#include <cmath>

#include "apps/doctor_checks.h"
#include "kernels/runtime/check.h"

namespace convoy::doctor {
namespace {

constexpr double kClockSeconds = 2;  // ranks read their clocks within a fraction of it

/// The variables by which launchers tell how many processes there are, in the order in which they win.
constexpr std::array kWorlds = {"WORLD_SIZE", "OMPI_COMM_WORLD_SIZE", "SLURM_STEP_NUM_TASKS", "PMI_SIZE"};

int number_of(const std::string& text) {
  int number = 0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

bool is_launcher(const std::string& parent) {
  constexpr std::array kNames = {"mpirun",  "mpiexec", "mpiexec.hydra",   "orterun",  "orted",
                                 "prterun", "prted",   "hydra_pmi_proxy", "pmi_proxy"};
  return std::find(kNames.begin(), kNames.end(), parent) != kNames.end();
}

void check_worlds(const RankFacts& facts, Findings& findings) {
  const std::string winner = variable_of(facts, "WORLD_SIZE").empty() ? "--rendezvous" : "WORLD_SIZE";
  bool any = false;
  for (const char* name : kWorlds) {
    const std::string text = variable_of(facts, name);
    any = any || !text.empty();
    if (text.empty() || number_of(text) == facts.world) continue;
    const bool is_alone = facts.world == 1 && number_of(text) > 1;
    findings.push_back(
        {.grade = is_alone ? Grade::error : Grade::warning,
         .found = is_alone
                      ? fmt::format("rank {} on {} is alone ({}), but {} is {}", facts.rank, facts.host,
                                    facts.source, name, text)
                      : fmt::format("{} ranks met ({}), but {} is {}", facts.world, facts.source, name, text),
         .expected =
             is_alone
                 ? fmt::format("{} ranks that meet; now each trains by itself", text)
                 : std::string("one number of ranks, or that an outer launcher is meant to have another"),
         .fix = winner == "WORLD_SIZE"
                    ? "unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE, which win over the rest"
                    : "--rendezvous auto"});
  }
  if (any || facts.world > 1 || !is_launcher(facts.parent)) return;
  const auto mpi = std::find_if(facts.libraries.begin(), facts.libraries.end(), [](const std::string& text) {
    return text.find("MPI") != std::string::npos;
  });
  findings.push_back(
      {.grade = Grade::error,
       .found =
           fmt::format("{} started this process on {} and has told it nothing: no rank, no number of ranks",
                       facts.parent, facts.host),
       .expected = "OMPI_COMM_WORLD_* or PMI_*; without, each process trains by itself",
       .fix =
           fmt::format("start it with the mpirun of {}, or set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT",
                       mpi == facts.libraries.end() ? "an MPI that this program is built with" : *mpi)});
}

/// The library's name, before its version: what two texts have in common.
std::string name_of(const std::string& library) {
  return library.substr(0, library.find_first_of("0123456789"));
}

void check_versions(const std::vector<RankFacts>& ranks, Findings& findings) {
  const RankFacts& first = ranks.front();
  for (const RankFacts& facts : ranks) {
    const std::string who = fmt::format("rank {} on {}", facts.rank, facts.host);
    if (facts.version != first.version) {
      findings.push_back(
          {.grade = Grade::error,
           .found = fmt::format("{} is convoy {}, rank 0 is {}", who, facts.version, first.version),
           .expected = "one version",
           .fix = fmt::format("install convoy {} on {}", first.version, facts.host)});
    } else if (facts.program != first.program) {
      findings.push_back(
          {.found = fmt::format("{} runs another file than rank 0 (its bytes have hash {}, rank 0's {})", who,
                                facts.program, first.program),
           .expected = "one build, or two of the same sources",
           .fix = fmt::format("copy the programs of {} to {}", first.host, facts.host)});
    }
    for (const std::string& library : facts.libraries)
      for (const std::string& other : first.libraries) {
        if (name_of(library) != name_of(other) || library == other) continue;
        const bool talks = name_of(library).find("NCCL") != std::string::npos ||
                           name_of(library).find("MPI") != std::string::npos;
        findings.push_back({.grade = talks ? Grade::error : Grade::warning,
                            .found = fmt::format("{} has {}, rank 0 has {}", who, library, other),
                            .expected = talks ? "one version of what ranks talk through"
                                              : "one version, so that ranks compute alike",
                            .fix = fmt::format("install {} on {}", other, facts.host)});
      }
  }
}

void check_names_and_clocks(const std::vector<RankFacts>& ranks, Findings& findings) {
  const auto hosts = by_host(ranks);
  for (std::size_t node = 0; node < hosts.size(); ++node) {
    if (hosts[node].empty()) continue;
    const RankFacts& facts = *hosts[node].front();
    for (std::size_t before = 0; before < node; ++before)
      if (!hosts[before].empty() && hosts[before].front()->host_name == facts.host_name) {
        findings.push_back(
            {.found = fmt::format("hosts {} and {} are both called {}", before, node, facts.host_name),
             .expected = "a name of its own for each host, for messages and for mpirun's lists",
             .fix = "hostnamectl set-hostname NAME, or docker run --hostname NAME"});
        break;
      }
    const double ahead = facts.clock - ranks.front().clock;
    if (std::abs(ahead) > kClockSeconds)
      findings.push_back(
          {.found = fmt::format("the clock of {} is {:.1f} s {} that of {}", facts.host, std::abs(ahead),
                                ahead > 0 ? "ahead of" : "behind", ranks.front().host),
           .expected = "clocks that agree, for logs, file times and certificates",
           .fix = fmt::format("timedatectl set-ntp true, on {}", facts.host)});
  }
}

}  // namespace

Findings check_launch(const Examination& examination) {
  Findings findings;
  check_worlds(examination.ranks.front(), findings);
  check_versions(examination.ranks, findings);
  check_names_and_clocks(examination.ranks, findings);
  return findings;
}

}  // namespace convoy::doctor
