// All rows of the rank table; run on request only, with ctest -L soak.
#include <gtest/gtest.h>

#include "tests/apps/rank_rows.h"

namespace convoy::testing {
namespace {

class Ranks : public ::testing::TestWithParam<Row> {};

TEST_P(Ranks, TrainLikeASingleRank) { expect_training_of_one_process(GetParam()); }

INSTANTIATE_TEST_SUITE_P(All, Ranks, ::testing::ValuesIn(all_rows()),
                         [](const auto& row) { return row.param.name(); });

}  // namespace
}  // namespace convoy::testing
