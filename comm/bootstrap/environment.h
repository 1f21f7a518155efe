// The plan of an initialization, derived from an option and the environment variables of the launcher.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "convoy/comm/core/endpoint.h"

namespace convoy::dist {

using Variables = std::map<std::string, std::string>;

/// Returns the environment variables of this process.
Variables environment_variables();

/// The rank of this process, as its launcher describes it.
struct Launch {
  int rank = 0;
  int world_size = 1;
  /// The launcher's local rank. RankInfo has the one that is derived from the hosts of all ranks.
  std::optional<int> local_rank;
  std::optional<int> local_world_size;
  /// The address and port of rank 0; empty and 0 if unknown.
  std::string address;
  int port = 0;
  /// Where rank 0 listens if another program uses `port`, in this order.
  std::vector<int> other_ports;
  /// The name of the job, which distinguishes it from other jobs; empty if the launcher sets none.
  std::string job;
  /// Whether the launcher started the processes as MPI ranks.
  bool by_mpi = false;
  /// The variables that were used, such as "OMPI_COMM_WORLD_*".
  std::string source;
  /// The other sources that were found and not used.
  std::vector<std::string> others;
};

// The following functions depend only on their arguments, so tests can list every launcher in a table.

/// Returns the launch that the first complete source describes; nullopt if there is none, which means a
/// single process. A source with several ranks is preferred to an earlier one with a single rank, which
/// describes an outer launcher: mpiexec in an srun step of one task, mpirun in a pod with WORLD_SIZE=1. The
/// sources, in this order:
///
/// - RANK, WORLD_SIZE, and LOCAL_RANK, LOCAL_WORLD_SIZE: torchrun and most platforms.
/// - OMPI_COMM_WORLD_{RANK, SIZE, LOCAL_RANK, LOCAL_SIZE}: Open MPI's mpirun.
/// - SLURM_{PROCID, STEP_NUM_TASKS, LOCALID}: srun. A batch script or a shell of salloc is a single process.
/// - PMI_{RANK, SIZE}: mpiexec of MPICH and its derivatives.
/// - MLP_{WORKER_NUM, WORKER_GPU}: the number of nodes and of processes per node. This process is LOCAL_RANK
///   of node MLP_ROLE_INDEX.
///
/// The address of rank 0 is MASTER_ADDR and MASTER_PORT, or MLP_WORKER_0_HOST and MLP_WORKER_0_PORT. Under
/// Slurm the default is the first host of the step and ports derived from the job ID. If torchrun's agent
/// listens at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True), the next port is used. The job is CONVOY_JOB,
/// or the launcher's name for it.
///
/// Throws UsageError for a contradictory source, and for an incomplete source if no other source is complete.
std::optional<Launch> launch_from(const Variables& variables);
/// Does the same with RANK and WORLD_SIZE as the only source.
std::optional<Launch> launch_from_rank(const Variables& variables);

/// Returns a warning if RANK and WORLD_SIZE, which take precedence, contradict the rank and the size that
/// mpirun has given this process. Returns nullopt if they do not, or if torchrun has set them, whose agent
/// mpirun may start. If the sizes differ, only the first process of mpirun has the warning.
std::optional<std::string> contradiction_with_mpirun(const Variables& variables);

/// Returns the first host of a Slurm node list: "gpu003" for "gpu[003-006,9],cpu1".
std::string first_host_of(const std::string& node_list);

struct RendezvousPlan {
  enum class Method { single_process, mpi, tcp, file };
  Method method = Method::single_process;
  /// The rank from the environment; MPI's own rank is used instead. If MPI provides the world size, it is 0.
  Launch launch;
  Endpoint endpoint;
  std::string path;
  /// The value of RankInfo::source.
  std::string source;
  /// The value of Rendezvous::note().
  std::string note;
};

/// Returns the plan for RendezvousOptions::init_method and the given environment variables. Throws
/// UsageError if `init_method` is invalid, or if the rank, the world size or the address of rank 0 is
/// unknown.
RendezvousPlan plan_rendezvous(const std::string& init_method, const Variables& variables);

}  // namespace convoy::dist
