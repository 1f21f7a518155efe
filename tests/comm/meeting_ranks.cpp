#include "tests/comm/meeting_ranks.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "comm/environment.h"
#include "comm/socket.h"
#include "tests/support/rank_processes.h"

namespace convoy::testing {

int free_port() {
  const Socket socket(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t bytes = sizeof address;
  if (bind(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), bytes) != 0 ||
      getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0)
    throw std::runtime_error("no free port");
  return ntohs(address.sin_port);
}

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
        const auto meeting = Rendezvous::meet({.where = where, .timeout_seconds = 20});
        body(*meeting);
      },
      beside);
}

}  // namespace convoy::testing
