// Ranks as forked processes that meet as those of a user do: by an environment and a place.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "comm/rendezvous.h"
#include "tests/support/free_port.h"

namespace convoy::testing {

/// This process has these variables and no others of any launcher, from now on.
void set_launch(int rank, int world);

/// Each of `ranks` processes meets the others at `where` and runs `body`. What fails in one fails the test.
void run_meeting_ranks(int ranks, const std::string& where, const std::function<void(Rendezvous&)>& body,
                       const std::function<void(const std::vector<pid_t>&)>& beside = nullptr);

}  // namespace convoy::testing
