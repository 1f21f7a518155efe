#include "comm/environment.h"

#include <unistd.h>

#include <array>
#include <charconv>
#include <span>

#include "kernels/runtime/check.h"

namespace convoy {
namespace {

/// Reads variables, and knows which of those that belong together are missing.
class Reader {
 public:
  explicit Reader(const Variables& variables) : variables_(variables) {}

  /// Set to nothing is not set: scripts say `RANK= command`.
  bool has(const std::string& name) const { return !text(name).empty(); }

  std::string text(const std::string& name) const {
    const auto found = variables_.find(name);
    return found == variables_.end() ? "" : found->second;
  }

  std::optional<int> number(const std::string& name, int lowest = 0) const {
    const std::string value = text(name);
    if (value.empty()) return std::nullopt;
    int number = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    check(error == std::errc() && end == value.data() + value.size() && number >= lowest,
          "{}={}: found '{}', expected a whole number of {} or more", name, value, value, lowest);
    return number;
  }

 private:
  const Variables& variables_;
};

struct Names {
  const char* rank;
  const char* world;
  const char* local_rank;
  const char* local_world;
};

/// What a source has to say.
struct Found {
  bool present = false;
  std::optional<Launch> launch;  // where it is complete
  std::string lacking;           // where it is not, and ought to be
};

Found read_ranks(const Reader& reader, const Names& names) {
  Found found{.present = reader.has(names.rank) || reader.has(names.world)};
  if (!found.present) return found;
  if (!reader.has(names.rank) || !reader.has(names.world)) {
    const bool has_rank = reader.has(names.rank);
    found.lacking = fmt::format("{} is set and {} is not: set both, or neither",
                                has_rank ? names.rank : names.world, has_rank ? names.world : names.rank);
    return found;
  }
  Launch launch;
  launch.rank = *reader.number(names.rank);
  launch.world = *reader.number(names.world, 1);
  launch.local_rank = reader.number(names.local_rank);
  launch.local_world = reader.number(names.local_world, 1);
  const auto compare = [](const char* small, int value, bool fits, const char* large, int limit) {
    check(fits, "{}={} does not go with {}={}", small, value, large, limit);
  };
  compare(names.rank, launch.rank, launch.rank < launch.world, names.world, launch.world);
  if (launch.local_world)
    compare(names.local_world, *launch.local_world, *launch.local_world <= launch.world, names.world,
            launch.world);
  if (launch.local_rank && launch.local_world)
    compare(names.local_rank, *launch.local_rank, *launch.local_rank < *launch.local_world, names.local_world,
            *launch.local_world);
  found.launch = launch;
  return found;
}

Found read_rank(const Reader& reader) {
  Found found = read_ranks(reader, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});
  if (found.launch) found.launch->job = reader.text("TORCHELASTIC_RUN_ID");
  return found;
}

Found read_open_mpi(const Reader& reader) {
  Found found = read_ranks(reader, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
  if (!found.launch) return found;
  found.launch->job = reader.text("PMIX_NAMESPACE");
  found.launch->by_mpi = true;
  return found;
}

Found read_slurm(const Reader& reader) {
  Found found{.present = reader.has("SLURM_JOB_ID") || reader.has("SLURM_PROCID")};
  // A batch script has a rank, 0, and the number of tasks of all its job, but is no step of it.
  if (!reader.has("SLURM_STEP_NUM_TASKS")) return found;
  found = read_ranks(reader, {"SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID", ""});
  if (!found.launch) return found;
  const int job = reader.number("SLURM_JOB_ID").value_or(0),
            step = reader.number("SLURM_STEP_ID").value_or(0);
  found.launch->job = fmt::format("{}.{}", job, step);
  found.launch->address = first_host_of(reader.text("SLURM_STEP_NODELIST"));
  // Below the ports that systems hand out by themselves, and another one for each step.
  found.launch->port = 10000 + static_cast<int>((job * 16LL + step) % 20000);
  return found;
}

Found read_pmi(const Reader& reader) {
  Found found = read_ranks(reader, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
  if (found.launch) found.launch->by_mpi = true;
  return found;
}

/// A platform that describes nodes, and leaves it to each node to start its processes.
Found read_mlp(const Reader& reader) {
  Found found{.present = reader.has("MLP_WORKER_NUM")};
  if (!found.present) return found;
  const int nodes = *reader.number("MLP_WORKER_NUM", 1);
  const int per_node = reader.number("MLP_WORKER_GPU", 1).value_or(1);
  const int node = reader.number("MLP_ROLE_INDEX").value_or(0);
  const std::optional<int> local =
      per_node == 1 && !reader.has("LOCAL_RANK") ? 0 : reader.number("LOCAL_RANK");
  if (!local) {
    found.lacking = fmt::format(
        "MLP_WORKER_NUM={} nodes of MLP_WORKER_GPU={}, but no LOCAL_RANK: set it for each process, or start "
        "them with mpirun; RANK=0 WORLD_SIZE=1 makes this one process",
        nodes, per_node);
    return found;
  }
  check(node < nodes, "MLP_ROLE_INDEX={} does not go with MLP_WORKER_NUM={}", node, nodes);
  check(*local < per_node, "LOCAL_RANK={} does not go with MLP_WORKER_GPU={}", *local, per_node);
  found.launch = Launch{.rank = node * per_node + *local,
                        .world = nodes * per_node,
                        .local_rank = local,
                        .local_world = per_node};
  return found;
}

struct Source {
  const char* name;
  Found (*read)(const Reader&);
};

constexpr std::array kSources = {Source{"RANK and WORLD_SIZE", read_rank},
                                 Source{"OMPI_COMM_WORLD_*", read_open_mpi}, Source{"SLURM_*", read_slurm},
                                 Source{"PMI_*", read_pmi}, Source{"MLP_*", read_mlp}};

void add_meeting_place(const Reader& reader, Launch& launch) {
  if (reader.has("CONVOY_JOB")) launch.job = reader.text("CONVOY_JOB");
  for (const char* name : {"MLP_WORKER_0_HOST", "MASTER_ADDR"})  // the last one set wins
    if (reader.has(name)) launch.address = reader.text(name);
  for (const char* name : {"MLP_WORKER_0_PORT", "MASTER_PORT"})
    if (reader.has(name)) launch.port = *reader.number(name, 1);
  if (reader.text("TORCHELASTIC_USE_AGENT_STORE") == "True" && reader.has("MASTER_PORT")) ++launch.port;
  check(launch.port <= 65535, "port {}: found {}, expected 65535 at most", launch.port, launch.port);
}

std::optional<Launch> first_complete(const Reader& reader, std::span<const Source> sources) {
  std::optional<Launch> launch;
  std::vector<std::string> others;
  std::string lacking;
  for (const Source& source : sources) {
    if (launch) {
      // What an outer launcher says need not make sense in here.
      try {
        if (source.read(reader).present) others.emplace_back(source.name);
      } catch (const UsageError&) {
        others.emplace_back(source.name);
      }
      continue;
    }
    const Found found = source.read(reader);
    if (found.launch) {
      launch = found.launch;
      launch->source = source.name;
    } else if (found.present) {
      others.emplace_back(source.name);
      if (lacking.empty()) lacking = found.lacking;
    }
  }
  if (!launch) {
    check(lacking.empty(), "{}", lacking);
    return std::nullopt;
  }
  launch->others = others;
  add_meeting_place(reader, *launch);
  return launch;
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

std::string first_host_of(const std::string& node_list) {
  std::string host;
  bool in_brackets = false, first_of_brackets = false;
  for (const char c : node_list) {
    if (c == '[') {
      in_brackets = first_of_brackets = true;
    } else if (c == ']') {
      in_brackets = false;
    } else if (in_brackets) {
      if (c == ',' || c == '-') first_of_brackets = false;
      if (first_of_brackets) host += c;
    } else if (c == ',') {
      break;
    } else {
      host += c;
    }
  }
  return host;
}

}  // namespace convoy
