#include "tests/comm/meeting_ranks.h"

#include <stdlib.h>

#include "comm/environment.h"
#include "tests/support/rank_processes.h"

namespace convoy::testing {

void set_launch(int rank, int world) {
  for (const auto& [name, value] : environment_variables())
    for (const char* prefix :
         {"OMPI_", "SLURM_", "PMI", "MLP_", "TORCHELASTIC_", "MASTER_", "LOCAL_", "CONVOY_JOB"})
      if (name.starts_with(prefix)) unsetenv(name.c_str());
  setenv("RANK", std::to_string(rank).c_str(), 1);
  setenv("WORLD_SIZE", std::to_string(world).c_str(), 1);
}

void run_meeting_ranks(int ranks, const std::string& where, const std::function<void(Rendezvous&)>& body,
                       const std::function<void(const std::vector<pid_t>&)>& beside) {
  run_forked_ranks(
      ranks,
      [&](const ForkedRank& rank) {
        set_launch(rank.rank, rank.size);
        const auto meeting = Rendezvous::meet({.where = where, .timeout_seconds = 40});
        body(*meeting);
        rank.wait_for_the_rest();  // or rank 0 might take the store away from those who are late
      },
      beside);
}

}  // namespace convoy::testing
