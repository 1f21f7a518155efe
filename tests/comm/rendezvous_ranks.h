// Runs ranks as forked processes that are initialized like a user's: through environment variables and a
// rendezvous.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "convoy/comm/bootstrap/rendezvous.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {

/// Sets RANK and WORLD_SIZE in this process and removes all other variables of launchers.
void set_launch(int rank, int world_size);

/// Initializes this process at `where`, which may be a key-value store.
std::unique_ptr<dist::Rendezvous> init_rendezvous(const std::string& where = "auto",
                                                  double timeout_seconds = 60);

/// Forks `ranks` processes, each of which is initialized at `where` and runs `body`. A failure in any of them
/// fails the test. `in_parent` runs in the test process meanwhile, with the process IDs.
void run_rendezvous_ranks(int ranks, const std::string& where,
                          const std::function<void(dist::Rendezvous&)>& body,
                          const std::function<void(const std::vector<pid_t>&)>& in_parent = nullptr);

}  // namespace convoy::testing
