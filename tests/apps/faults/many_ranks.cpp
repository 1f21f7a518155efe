// More ranks, for the tests of one program.
#include "tests/apps/faults/rank_job.h"

namespace convoy::testing {

std::vector<int> world_sizes() { return {4, 8}; }

}  // namespace convoy::testing
