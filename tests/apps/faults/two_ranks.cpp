// Two ranks, for the tests of one program.
#include "tests/apps/faults/rank_job.h"

namespace convoy::testing {

std::vector<int> world_sizes() { return {2}; }

}  // namespace convoy::testing
