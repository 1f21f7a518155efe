#include "convoy/comm/bootstrap/environment.h"

#include <unistd.h>

#include <fmt/ranges.h>
#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <span>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"

namespace convoy::dist {
namespace {

/// The first step number that Slurm reserves: for shells of salloc, batch scripts and the like (slurm.h,
/// SLURM_MAX_NORMAL_STEP_ID).
constexpr std::uint64_t kFirstReservedStep = 0xfffffff0;

// The ports of Slurm steps are below the ephemeral range, and not those of kubelet, memcached or MongoDB
// (10250, 11211, 27017).
constexpr std::uint64_t kFirstPort = 12000, kPortRange = 14000;
constexpr std::uint64_t kSlurmPorts = 4;  // that the ranks of a step try

int slurm_port(std::uint64_t number) { return static_cast<int>(kFirstPort + number % kPortRange); }

/// Returns the result of splitmix64, so that two steps with the same first port have different other ports.
std::uint64_t mixed(std::uint64_t number) {
  number += 0x9e3779b97f4a7c15;
  number = (number ^ (number >> 30)) * 0xbf58476d1ce4e5b9;
  number = (number ^ (number >> 27)) * 0x94d049bb133111eb;
  return number ^ (number >> 31);
}

/// Typed access to environment variables.
class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  /// Returns whether the variable is set and not empty: scripts unset variables with `RANK= command`.
  bool has(const std::string& name) const { return !text(name).empty(); }

  std::string text(const std::string& name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? "" : found->second;
  }

  /// Returns the value; nullopt if unset. Throws UsageError unless it is an integer of at least `min`.
  template <class T = int>
  std::optional<T> number(const std::string& name, T min = 0) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    T number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    check(error == std::errc() && end == value.data() + value.size() && number >= min,
          "{}={}: found '{}', expected an integer of {} or more", name, value, value, min);
    return number;
  }

 private:
  const Variables& variables_;
};

struct Names {
  const char* rank;
  const char* world_size;
  const char* local_rank;
  const char* local_world_size;
};

/// The result of reading one source.
struct Found {
  bool present = false;
  std::optional<Launch> launch;  // set if the source is complete
  std::string missing;           // the error message if the source is incomplete
};

/// A launcher and its variables.
struct Source {
  const char* name;
  Names names;      // empty strings: the launcher has no such variables
  const char* job;  // the variable with the name of the job
  bool by_mpi;
  Found (*read)(const Reader&, const Source&);
};

/// Reads a source whose variables contain the rank and the world size.
Found read_ranks(const Reader& reader, const Source& source) {
  const Names& names = source.names;
  Found found{.present = reader.has(names.rank) || reader.has(names.world_size)};
  if (!found.present) return found;
  if (!reader.has(names.rank) || !reader.has(names.world_size)) {
    const bool has_rank = reader.has(names.rank);
    found.missing =
        fmt::format("{} is set and {} is not; set both or neither", has_rank ? names.rank : names.world_size,
                    has_rank ? names.world_size : names.rank);
    return found;
  }
  Launch launch;
  launch.rank = *reader.number(names.rank);
  launch.world_size = *reader.number(names.world_size, 1);
  launch.local_rank = reader.number(names.local_rank);
  launch.local_world_size = reader.number(names.local_world_size, 1);
  launch.job = reader.text(source.job);
  launch.by_mpi = source.by_mpi;
  const auto compare = [](const char* small, int value, bool fits, const char* large, int limit) {
    check(fits, "{}={} contradicts {}={}", small, value, large, limit);
  };
  compare(names.rank, launch.rank, launch.rank < launch.world_size, names.world_size, launch.world_size);
  if (launch.local_world_size)
    compare(names.local_world_size, *launch.local_world_size, *launch.local_world_size <= launch.world_size,
            names.world_size, launch.world_size);
  if (launch.local_rank && launch.local_world_size)
    compare(names.local_rank, *launch.local_rank, *launch.local_rank < *launch.local_world_size,
            names.local_world_size, *launch.local_world_size);
  found.launch = launch;
  return found;
}

Found read_slurm(const Reader& reader, const Source& source) {
  Found found{.present = reader.has("SLURM_JOB_ID") || reader.has("SLURM_PROCID")};
  // A batch script has rank 0 and the number of tasks of the job, but it is not a job step. The shell that
  // salloc starts is a step of Slurm's own, with a reserved number.
  const std::uint64_t step = reader.number<std::uint64_t>("SLURM_STEP_ID").value_or(0);
  if (!reader.has("SLURM_STEP_NUM_TASKS") || step >= kFirstReservedStep) return found;
  found = read_ranks(reader, source);
  if (!found.launch) return found;
  const auto job = reader.number<std::uint64_t>("SLURM_JOB_ID").value_or(0);
  found.launch->job = fmt::format("{}.{}", job, step);
  found.launch->address = first_host_of(reader.text("SLURM_STEP_NODELIST"));
  found.launch->port = slurm_port(job * 16 + step);
  for (std::uint64_t salt = 1; salt < kSlurmPorts; ++salt)
    found.launch->other_ports.push_back(slurm_port(mixed(job * 16 + step + (salt << 56))));
  return found;
}

/// Reads the variables of a platform that describes nodes; each node starts its own processes.
Found read_mlp(const Reader& reader, const Source&) {
  Found found{.present = reader.has("MLP_WORKER_NUM")};
  if (!found.present) return found;
  const int nodes = *reader.number("MLP_WORKER_NUM", 1);
  const int per_node = reader.number("MLP_WORKER_GPU", 1).value_or(1);
  const int node = reader.number("MLP_ROLE_INDEX").value_or(0);
  const std::optional<int> local =
      per_node == 1 && !reader.has("LOCAL_RANK") ? 0 : reader.number("LOCAL_RANK");
  if (!local) {
    found.missing = fmt::format(
        "MLP_WORKER_NUM={} and MLP_WORKER_GPU={} are set and LOCAL_RANK is not; set it for each process, or "
        "use mpirun; for a single process set RANK=0 and WORLD_SIZE=1",
        nodes, per_node);
    return found;
  }
  check(node < nodes, "MLP_ROLE_INDEX={} contradicts MLP_WORKER_NUM={}", node, nodes);
  check(*local < per_node, "LOCAL_RANK={} contradicts MLP_WORKER_GPU={}", *local, per_node);
  found.launch = Launch{.rank = node * per_node + *local,
                        .world_size = nodes * per_node,
                        .local_rank = local,
                        .local_world_size = per_node};
  return found;
}

constexpr std::array kSources = {
    Source{"RANK and WORLD_SIZE",
           {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"},
           "TORCHELASTIC_RUN_ID",
           false,
           read_ranks},
    Source{"OMPI_COMM_WORLD_*",
           {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK",
            "OMPI_COMM_WORLD_LOCAL_SIZE"},
           "PMIX_NAMESPACE",
           true,
           read_ranks},
    Source{"SLURM_*", {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""}, "", false, read_slurm},
    Source{"PMI_*", {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"}, "", true, read_ranks},
    Source{"MLP_*", {"", "", "", ""}, "", false, read_mlp}};

void add_rendezvous_location(const Reader& reader, Launch& launch) {
  if (reader.has("CONVOY_JOB")) launch.job = reader.text("CONVOY_JOB");
  for (const char* name : {"MLP_WORKER_0_HOST", "MASTER_ADDR"})  // the last one that is set takes precedence
    if (reader.has(name)) launch.address = reader.text(name);
  std::string& address = launch.address;
  if (address.starts_with('[') && address.ends_with(']'))
    address = address.substr(1, address.size() - 2);  // of IPv6, as in a URL
  check(std::count(address.begin(), address.end(), ':') != 1,
        "address of rank 0: found {}, expected a name or an address without a port, which MASTER_PORT has",
        address);
  for (const char* name : {"MLP_WORKER_0_PORT", "MASTER_PORT"})
    if (reader.has(name)) {
      launch.port = *reader.number(name, 1);
      launch.other_ports.clear();
    }
  if (reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True" && reader.has("MASTER_PORT")) ++launch.port;
  check(launch.port <= 65535, "port of rank 0: found {}, expected at most 65535", launch.port);
}

std::optional<Launch> first_complete(const Reader& reader, std::span<const Source> sources) {
  std::optional<Launch> launch;
  std::vector<std::string> others;
  std::string missing;
  for (const Source& source : sources) {
    Found found;
    try {
      found = source.read(reader, source);
    } catch (const UsageError&) {
      if (!launch) throw;
      found.present = true;  // the variables of an outer launcher may be invalid here
    }
    const bool is_first = !launch && found.launch;
    const bool is_inner = launch && launch->world_size == 1 && found.launch && found.launch->world_size > 1;
    if (is_first || is_inner) {
      if (launch) others.push_back(launch->source);
      launch = found.launch;
      launch->source = source.name;
    } else if (found.present) {
      others.emplace_back(source.name);
      if (missing.empty()) missing = found.missing;
    }
  }
  if (!launch) {
    check(missing.empty(), "{}", missing);
    return std::nullopt;
  }
  launch->others = others;
  add_rendezvous_location(reader, *launch);
  return launch;
}

/// Returns a plan with the ranks of `launch`. The caller adds the endpoint or path.
RendezvousPlan plan_for(const Launch& launch, RendezvousPlan::Method method, const std::string& source,
                        const std::string& place) {
  RendezvousPlan plan{.method = method, .launch = launch, .source = source, .note = launch.source + place};
  if (!launch.others.empty()) plan.note += fmt::format("; {} too", fmt::join(launch.others, ", "));
  return plan;
}

RendezvousPlan plan_at_address(const Launch& launch) {
  check(!launch.address.empty() && launch.port != 0,
        "{}: found rank {} of {}, but {} is not set; set MASTER_ADDR and MASTER_PORT, or use a rendezvous "
        "at tcp://HOST:PORT",
        launch.source, launch.rank, launch.world_size,
        launch.address.empty() ? "MASTER_ADDR" : "MASTER_PORT");
  const Endpoint endpoint{launch.address, launch.port};
  RendezvousPlan plan = plan_for(launch, RendezvousPlan::Method::tcp, "environment",
                                 fmt::format(", tcp://{}", endpoint.text()));
  plan.endpoint = endpoint;
  return plan;
}

RendezvousPlan plan_by_launcher(const std::optional<Launch>& launch) {
  if (!launch) return {.source = "one process", .note = "one process"};
  if (launch->by_mpi) return plan_for(*launch, RendezvousPlan::Method::mpi, "mpi", ", MPI");
  if (launch->world_size == 1)
    return plan_for(*launch, RendezvousPlan::Method::single_process, "environment", "");
  return plan_at_address(*launch);
}

}  // namespace

Variables environment_variables() {
  Variables variables;
  for (char** line = environ; line != nullptr && *line != nullptr; ++line) {
    const std::string text = *line;
    const std::size_t equals = text.find('=');
    if (equals != std::string::npos) variables.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return variables;
}

std::optional<Launch> launch_from(const Variables& variables) {
  return first_complete(Reader(variables), kSources);
}

std::optional<Launch> launch_from_rank(const Variables& variables) {
  return first_complete(Reader(variables), std::span(kSources).first(1));
}

std::optional<std::string> contradiction_with_mpirun(const Variables& variables) {
  const Reader reader(variables);
  const std::optional<Launch> launch = launch_from(variables);
  if (!launch || launch->source != kSources[0].name || reader.has("TORCHELASTIC_RUN_ID")) return std::nullopt;
  for (Source source : kSources) {
    if (!source.by_mpi) continue;
    source.names.local_rank = source.names.local_world_size = "";  // do not matter here
    Found mpi;
    try {
      mpi = read_ranks(reader, source);
    } catch (const UsageError&) {
      continue;  // such variables are not used
    }
    if (!mpi.launch || mpi.launch->world_size == 1) continue;
    const int rank = mpi.launch->rank, size = mpi.launch->world_size;
    const bool contradicts = launch->world_size == size ? launch->rank != rank : rank == 0;
    if (!contradicts) continue;
    return fmt::format(
        "RANK={} and WORLD_SIZE={} take precedence over {}={} and {}={} of mpirun; unset RANK WORLD_SIZE "
        "LOCAL_RANK LOCAL_WORLD_SIZE if they are left over from another job, or set "
        "the rendezvous to env if they are meant",
        launch->rank, launch->world_size, source.names.rank, rank, source.names.world_size, size);
  }
  return std::nullopt;
}

std::string first_host_of(const std::string& node_list) {
  const std::size_t open = node_list.find_first_of("[,");
  if (open == std::string::npos || node_list[open] == ',') return node_list.substr(0, open);
  const std::size_t end = node_list.find_first_of(",-]", open), close = node_list.find(']', open);
  const std::string first = node_list.substr(0, open) + node_list.substr(open + 1, end - open - 1);
  return close == std::string::npos ? first : first + first_host_of(node_list.substr(close + 1));
}

RendezvousPlan plan_rendezvous(const std::string& init_method, const Variables& variables) {
  if (init_method == "auto") return plan_by_launcher(launch_from(variables));
  if (init_method == "env") {
    const std::optional<Launch> launch = launch_from_rank(variables);
    check_option(launch.has_value(), "RendezvousOptions::init_method",
                 "found env, but RANK and WORLD_SIZE are not set; set them, and MASTER_ADDR and MASTER_PORT");
    return plan_by_launcher(launch);
  }
  const std::optional<Launch> launch = launch_from(variables);
  if (init_method == "mpi") {
    // Some launchers set no MPI variables; MPI then provides the world size.
    if (launch && launch->by_mpi) return plan_for(*launch, RendezvousPlan::Method::mpi, "mpi", ", MPI");
    return {.method = RendezvousPlan::Method::mpi,
            .launch = {.world_size = 0},
            .source = "mpi",
            .note = "rendezvous by MPI"};
  }
  const bool tcp = init_method.starts_with("tcp://"), file = init_method.starts_with("file://");
  check_option(tcp || file, "RendezvousOptions::init_method",
               "found '{}', expected auto, mpi, tcp://HOST:PORT, file:///PATH or env", init_method);
  const std::string location = init_method.substr(init_method.find("//") + 2);
  const Endpoint endpoint = tcp ? parse_endpoint(location) : Endpoint();
  check_option(tcp || location.starts_with('/'), "RendezvousOptions::init_method",
               "found {}, expected file:// and an absolute path", init_method);
  check_option(launch.has_value(), "RendezvousOptions::init_method",
               "found {}, but the rank of this process is unknown; set RANK and WORLD_SIZE", init_method);
  RendezvousPlan plan = plan_for(*launch, tcp ? RendezvousPlan::Method::tcp : RendezvousPlan::Method::file,
                                 tcp ? "tcp" : "file", fmt::format(", {}", init_method));
  plan.endpoint = endpoint;
  if (file) plan.path = location;
  return plan;
}

}  // namespace convoy::dist
