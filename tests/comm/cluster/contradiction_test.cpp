// Tests of the warning about variables of a rank that contradict those of mpirun.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/comm/bootstrap/environment.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

const dist::Variables kTorchrun = {{"RANK", "5"}, {"WORLD_SIZE", "8"}, {"TORCHELASTIC_RUN_ID", "run7"}};
const dist::Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"}, {"OMPI_COMM_WORLD_SIZE", "4"}};
const dist::Variables kPmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};

dist::Variables operator+(dist::Variables a, const dist::Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

TEST(ContradictionWithMpirun, NamesBothAndTheFix) {
  const auto with = [](const char* rank, const char* size) {
    return kOpenMpi + dist::Variables{{"RANK", rank}, {"WORLD_SIZE", size}};  // mpirun's rank 3 of 4
  };
  const auto warning = dist::contradiction_with_mpirun(with("0", "4"));
  ASSERT_TRUE(warning.has_value());
  EXPECT_THAT(*warning, HasSubstr("RANK=0 and WORLD_SIZE=4 take precedence over OMPI_COMM_WORLD_RANK=3 and "
                                  "OMPI_COMM_WORLD_SIZE=4"));
  EXPECT_THAT(*warning, HasSubstr("unset RANK WORLD_SIZE"));
  // Of processes that all contradict mpirun, the first one speaks.
  EXPECT_FALSE(dist::contradiction_with_mpirun(with("0", "2")).has_value());
  EXPECT_TRUE(dist::contradiction_with_mpirun(with("1", "2") + dist::Variables{{"OMPI_COMM_WORLD_RANK", "0"}})
                  .has_value());
  EXPECT_TRUE(dist::contradiction_with_mpirun(kPmi + dist::Variables{{"RANK", "0"}, {"WORLD_SIZE", "2"}})
                  .has_value());

  const dist::Variables silent[] = {
      {},
      kOpenMpi,
      with("3", "4"),  // the same
      with("0", "1"),  // of an outer launcher, not used
      kOpenMpi + kTorchrun,
      kTorchrun + dist::Variables{{"OMPI_COMM_WORLD_RANK", "0"}, {"OMPI_COMM_WORLD_SIZE", "1"}},
      with("0", "4") + dist::Variables{{"OMPI_COMM_WORLD_RANK", "x"}}};
  for (const dist::Variables& variables : silent)
    EXPECT_FALSE(dist::contradiction_with_mpirun(variables).has_value());
}

}  // namespace
}  // namespace convoy::testing
