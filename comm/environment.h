// Who this process is, from the variables that launchers set. Pure functions, so that every launcher is a row
// of a table in the tests.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

namespace convoy {

using Variables = std::map<std::string, std::string>;

/// Those of this process.
Variables environment_variables();

/// One of several processes, as its launcher says.
struct Launch {
  int rank = 0;
  int world = 1;
  std::optional<int> local_rank;  // as the launcher counts; RankInfo has what the hosts of all ranks say
  std::optional<int> local_world;
  std::string address;              // where rank 0 is to be found; "" where nobody says so
  int port = 0;                     // 0 likewise
  std::string job;                  // tells this job from others; "" where the launcher has no name for it
  bool by_mpi = false;              // MPI knows the ranks, too
  std::string source;               // "OMPI_COMM_WORLD_*"
  std::vector<std::string> others;  // sources that were there, too, and gave way
};

/// The first complete source wins; nothing where there is none, which means one process:
///
/// - RANK, WORLD_SIZE, and LOCAL_RANK, LOCAL_WORLD_SIZE: torchrun and most platforms.
/// - OMPI_COMM_WORLD_{RANK, SIZE, LOCAL_RANK, LOCAL_SIZE}: Open MPI's mpirun.
/// - SLURM_{PROCID, STEP_NUM_TASKS, LOCALID}: srun. A batch script without srun is one process.
/// - PMI_{RANK, SIZE}: mpiexec of MPICH and its kin.
/// - MLP_{WORKER_NUM, WORKER_GPU}: so many nodes of so many processes; this one is LOCAL_RANK of node
///   MLP_ROLE_INDEX.
///
/// Where rank 0 is to be found: MASTER_ADDR and MASTER_PORT, else MLP_WORKER_0_HOST and _PORT, else under
/// Slurm the first host of the step and a port made of the job's number. Torchrun's agent may itself listen
/// at MASTER_PORT (TORCHELASTIC_USE_AGENT_STORE=True): then it is the port after that. The job: CONVOY_JOB,
/// else the launcher's name for it.
///
/// UsageError for a source that contradicts itself, and for an incomplete one where no other is complete.
std::optional<Launch> launch_from(const Variables& variables);
/// RANK and WORLD_SIZE alone.
std::optional<Launch> launch_from_rank(const Variables& variables);

/// "gpu[003-006,9],cpu1" has gpu003 first.
std::string first_host_of(const std::string& node_list);

}  // namespace convoy
