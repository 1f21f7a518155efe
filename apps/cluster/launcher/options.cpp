#include "convoy/apps/cluster/launcher/options.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>

#include "convoy/apps/common/text.h"
#include "convoy/comm/bootstrap/host.h"
#include "convoy/kernels/base/check.h"

namespace convoy::launcher {
namespace {

/// Parses "node1:4" or "node1". An address of IP version 6 is in brackets: "[fe80::1]:4".
HostPlace parse_host(const std::string& text, const char* flag) {
  const std::size_t colon = text.find(':', text.starts_with('[') ? text.find(']') : 0);
  HostPlace place{.name = text.substr(0, colon), .ranks = 0};
  if (place.name.starts_with('[')) place.name = place.name.substr(1, place.name.size() - 2);
  if (colon == std::string::npos) return place;
  place.ranks = number_in<int>(text.substr(colon + 1)).value_or(0);
  check(place.ranks > 0, "{}: found '{}', expected HOST or HOST:RANKS with at least one rank", flag, text);
  return place;
}

}  // namespace

CommandLine launch_command_line(LaunchOptions& o) {
  CommandLine line("convoy-launch",
                   "Starts the ranks of a program on one or several hosts, merges their output, and restarts "
                   "them after a failure. convoy-train then resumes from its newest checkpoint.");
  line.add_command(o.command, "Program to run, with its flags");
  line.group("Ranks");
  line.add("ranks", &o.ranks, "Ranks in total",
           {.value = "N",
            .default_text = "the sum of --hosts, the tasks of the Slurm job, or 1",
            .minimum = 1,
            .maximum = 65536});
  line.add("hosts", &o.hosts, "Hosts, with their numbers of ranks: node1:4,node2:4",
           {.value = "LIST", .default_text = "those of the Slurm job, or localhost"});
  line.add("remote-command", &o.remote_command,
           "Command that runs a program on the host {host}, for all hosts",
           {.value = "COMMAND", .default_text = "srun in a Slurm job, or ssh; none for this machine"});
  line.add("env", &o.environment,
           "Further environment variables to set on other hosts: NAME,NAME; CONVOY_*, NCCL_*, OMP_* "
           "and LD_LIBRARY_PATH are always set",
           {.value = "NAMES"});
  line.group("Failures");
  line.add(
      "max-restarts", &o.max_restarts,
      "Maximum number of restarts after failures; the count starts again after each newer checkpoint. Three failures in a "
      "row in the same step end the job earlier",
      {.value = "N", .minimum = 0, .maximum = 1000000});
  line.add("min-ranks", &o.min_ranks,
           "Continues without the ranks that failed, if at least N remain; needs --max-restarts",
           {.value = "N", .default_text = "all ranks", .minimum = 1, .maximum = 65536});
  line.add("spares", &o.spares,
           "Hosts for ranks whose hosts have failed, as in --hosts; needs --max-restarts",
           {.value = "LIST", .default_text = "none"});
  line.add(
      "host-cooldown", &o.host_cooldown,
      "Seconds until a host that failed may be used again; doubles with each of its failures, up to one hour; needs "
      "--spares or --min-ranks",
      {.value = "SECONDS", .default_text = "60", .minimum = 0.1, .maximum = 3600, .advanced = true});
  line.add("backoff", &o.backoff,
           "Seconds before the first restart; doubles with each restart, up to one minute",
           {.value = "SECONDS", .minimum = 0, .maximum = 3600, .advanced = true});
  line.add(
      "grace", &o.grace,
      "Seconds that ranks have to end after one has failed, or to continue if they are stopped (SIGSTOP) "
      "while the ranks end, before they are killed",
      {.value = "SECONDS", .minimum = 0.1, .maximum = 1e6, .advanced = true});
  line.add("start-timeout", &o.start_timeout, "Seconds for reaching all hosts",
           {.value = "SECONDS", .minimum = 0.1, .maximum = 1e6, .advanced = true});
  line.add("host-timeout", &o.host_timeout, "Seconds without an answer, after which a host is lost",
           {.value = "SECONDS", .minimum = 2, .maximum = 1e6, .advanced = true});
  line.group("Output");
  line.add("prefix", &o.prefix, "Rank in front of each line: [3]", {.advanced = true});
  line.add("host-agent", &o.host_agent,
           "Starts ranks on this host as the standard input says; convoy-launch itself uses this",
           {.advanced = true, .in_config = false});
  return line;
}

std::vector<HostPlace> parse_hosts(const std::string& hosts, std::optional<std::int64_t> ranks,
                                   const char* flag, const std::vector<HostPlace>& others) {
  if (hosts.empty()) return {{.name = "localhost", .ranks = static_cast<int>(ranks.value_or(1))}};
  std::vector<HostPlace> places, all = others;
  for (const std::string& text : words_of(hosts, ',')) {
    places.push_back(parse_host(text, flag));
    all.push_back(places.back());
    const auto same = [&](const HostPlace& other) { return other.name == places.back().name; };
    check(std::ranges::count_if(all, same) == 1, "{} {}: {} appears twice", flag, hosts, places.back().name);
  }
  const auto open = std::ranges::count_if(places, [](auto& place) { return place.ranks == 0; });
  std::int64_t sum = 0;
  for (const HostPlace& place : places) sum += place.ranks;
  check(!places.empty(), "{} {}: found no host", flag, hosts);
  const auto loopbacks = static_cast<std::size_t>(std::ranges::count_if(all, [](const HostPlace& place) {
    return place.name == "localhost" || place.name.starts_with("127.") || place.name == "::1";
  }));
  check(loopbacks == 0 || loopbacks == all.size(),
        "{} {}: other hosts cannot reach a loopback address; expected the name of this host", flag, hosts);
  check(open == 0 || static_cast<std::size_t>(open) == places.size(),
        "{} {}: found numbers of ranks for some hosts, expected them for all or none", flag, hosts);
  if (open == 0) {
    check(!ranks || *ranks == sum, "{} {}: has {} ranks in total, found --ranks {}", flag, hosts, sum,
          ranks.value_or(0));
    return places;
  }
  const auto count = static_cast<std::int64_t>(places.size());
  check(ranks.value_or(count) % count == 0,
        "--ranks {}: not divisible by {} hosts; give the ranks of each: --hosts node1:3,node2:2",
        ranks.value_or(0), count);
  for (HostPlace& place : places) place.ranks = static_cast<int>(ranks.value_or(count) / count);
  return places;
}

std::string slurm_hosts() {
  if (std::getenv("SLURM_JOB_ID") == nullptr || std::getenv("SLURM_JOB_NODELIST") == nullptr) return "";
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> output(
      popen("scontrol show hostnames \"$SLURM_JOB_NODELIST\"", "r"), pclose);
  std::string text;
  std::array<char, 4096> block{};
  while (output && std::fgets(block.data(), block.size(), output.get()) != nullptr) text += block.data();
  std::ranges::replace(text, '\n', ',');
  check(!words_of(text, ',').empty(),
        "SLURM_JOB_NODELIST={}: scontrol shows no hosts; give them with --hosts",
        std::getenv("SLURM_JOB_NODELIST"));
  return text;
}

std::optional<std::int64_t> slurm_tasks() {
  const char* const text = std::getenv("SLURM_NTASKS");
  const std::int64_t tasks = text == nullptr ? 0 : std::atoll(text);
  return tasks > 0 ? std::optional(tasks) : std::nullopt;
}

std::vector<std::string> agent_command(const std::string& remote_command, const std::string& host,
                                       const std::vector<std::string>& agent) {
  std::vector<std::string> words = words_of(remote_command);
  constexpr std::string_view kPlaceholder = "{host}";
  for (std::string& word : words)
    if (const std::size_t at = word.find(kPlaceholder); at != std::string::npos)
      word.replace(at, kPlaceholder.size(), host);
  words.insert(words.end(), agent.begin(), agent.end());
  words.front() = find_program(words.front());
  return words;
}

bool is_this_host(const std::string& host) {
  const std::string name = dist::this_host().name;
  return host == "localhost" || host == "127.0.0.1" || host == "::1" || host == name ||
         host == name.substr(0, name.find('.'));
}

std::string find_program(const std::string& name) {
  if (name.find('/') != std::string::npos) return std::filesystem::absolute(name);
  const char* const path = std::getenv("PATH");
  for (const std::string& directory : words_of(path == nullptr ? "" : path, ':'))
    if (const std::string file = directory + "/" + name;
        access(file.c_str(), X_OK) == 0 && !std::filesystem::is_directory(file))
      return file;
  fail<UsageError>("{}: program not found, expected a path or a program in PATH", name);
}

}  // namespace convoy::launcher
