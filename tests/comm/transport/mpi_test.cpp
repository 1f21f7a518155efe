// Tests of MPI under mpirun, including mpirun's reaction to failed ranks.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>

#include "tests/testing/support/mpirun.h"
#include "tests/testing/support/process.h"

namespace convoy::testing {
namespace {

using ::testing::ContainsRegex;

/// Runs mpi_ranks.cpp under mpirun.
ProcessResult run_ranks(int ranks, const std::vector<std::string>& arguments,
                        const std::vector<std::string>& options = {}) {
  std::vector<std::string> command = {CONVOY_MPIRUN, "-n", std::to_string(ranks)};
  command.insert(command.end(), options.begin(), options.end());
  command.push_back(CONVOY_MPI_RANKS);
  command.insert(command.end(), arguments.begin(), arguments.end());
  const TempDirectory session;
  return run_program(command, {.environment = mpirun_environment(session)});
}

class Mpirun : public ::testing::TestWithParam<int> {};

TEST_P(Mpirun, Conforms) {
  const ProcessResult result = run_ranks(GetParam(), {});
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

INSTANTIATE_TEST_SUITE_P(Ranks, Mpirun, ::testing::Values(1, 3, 4),
                         [](const auto& ranks) { return std::to_string(ranks.param); });

struct Fault {
  const char* name;
  std::vector<int> exit_codes;  // of the failed rank, or of a notified one, whichever exits first
  const char* text;             // a regular expression
  friend std::ostream& operator<<(std::ostream& out, const Fault& fault) { return out << fault.name; }
};

class MpirunFaults : public ::testing::TestWithParam<Fault> {};

TEST_P(MpirunFaults, EndTheJob) {
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult result = run_ranks(3, {std::string("--fault=") + GetParam().name});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60));  // not minutes
  EXPECT_THAT(GetParam().exit_codes, ::testing::Contains(result.exit_code)) << result.out << result.err;
  EXPECT_THAT(result.out + result.err, ContainsRegex(GetParam().text));
}

/// MPI receives a large message from another host in parts. Once the first part has arrived, it cannot cancel
/// the receive. Messages by TCP behave so on one host as well.
class MpirunByTcp : public ::testing::TestWithParam<int> {};

TEST_P(MpirunByTcp, EndsWhenARankIsStoppedAmidAMessage) {
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult result = run_ranks(GetParam(), {"--fault=stopped_amid_data"},
                                         {"--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", "lo"});
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_EQ(result.exit_code, 4) << result.out << result.err;
  EXPECT_THAT(result.out + result.err, ContainsRegex("rank [0-9]: rank [0-9] waited 2 s for rank 1"));
}

INSTANTIATE_TEST_SUITE_P(Ranks, MpirunByTcp, ::testing::Values(2, 8), ::testing::PrintToStringParamName());

INSTANTIATE_TEST_SUITE_P(All, MpirunFaults,
                         ::testing::Values(
                             // At least one rank prints its error; mpirun then kills the others.
                             Fault{"throws", {3, 4}, "rank 1: no data set here"},
                             Fault{"all_throw", {2}, "rank .: no such flag"},
                             Fault{"missing",
                                   {4},
                                   "rank [02]: all-reduce 2 \\(1 f32\\) on rank [02] of 3 \\(mpi\\): rank "
                                   "[02] waited 2 s for rank 1"},
                             Fault{"killed", {137}, "signal 9"}),
                         [](const auto& fault) { return std::string(fault.param.name); });

}  // namespace
}  // namespace convoy::testing
