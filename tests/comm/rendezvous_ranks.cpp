#include "tests/comm/rendezvous_ranks.h"

#include <stdlib.h>

#include "convoy/comm/bootstrap/environment.h"
#include "convoy/comm/cluster/store/store_rendezvous.h"
#include "tests/testing/support/rank_processes.h"

namespace convoy::testing {

void set_launch(int rank, int world_size) {
  for (const auto& [name, value] : dist::environment_variables())
    for (const char* prefix :
         {"OMPI_", "SLURM_", "PMI", "MLP_", "TORCHELASTIC_", "MASTER_", "LOCAL_", "CONVOY_JOB"})
      if (name.starts_with(prefix)) unsetenv(name.c_str());
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(world_size).c_str(), 1);
}

std::unique_ptr<dist::Rendezvous> init_rendezvous(const std::string& where, double timeout_seconds) {
  return dist::Rendezvous::init(
      {.init_method = where, .timeout_seconds = timeout_seconds, .by_store = dist::rendezvous_by_store});
}

void run_rendezvous_ranks(int ranks, const std::string& where,
                          const std::function<void(dist::Rendezvous&)>& body,
                          const std::function<void(const std::vector<pid_t>&)>& in_parent) {
  run_forked_ranks(
      ranks,
      [&](const ForkedRank& rank) {
        set_launch(rank.rank, rank.size);
        const auto rendezvous = init_rendezvous(where, 40);
        body(*rendezvous);
        rank.wait_for_peers();  // rank 0 serves the store until all ranks are done
      },
      in_parent);
}

}  // namespace convoy::testing
