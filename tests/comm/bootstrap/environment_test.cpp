// Tests of launcher detection and rendezvous plans, as tables.
#include "convoy/comm/bootstrap/environment.h"

#include <fmt/ranges.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

const dist::Variables kTorchrun = {{"RANK", "5"},
                                   {"WORLD_SIZE", "8"},
                                   {"LOCAL_RANK", "1"},
                                   {"LOCAL_WORLD_SIZE", "4"},
                                   {"MASTER_ADDR", "10.0.0.1"},
                                   {"MASTER_PORT", "29500"},
                                   {"TORCHELASTIC_RUN_ID", "run7"}};
const dist::Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "3"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                  {"PMIX_NAMESPACE", "123"}};
const dist::Variables kSlurmStep = {{"SLURM_JOB_ID", "4711"},
                                    {"SLURM_STEP_ID", "2"},
                                    {"SLURM_PROCID", "2"},
                                    {"SLURM_STEP_NUM_TASKS", "3"},
                                    {"SLURM_NTASKS", "3"},
                                    {"SLURM_LOCALID", "0"},
                                    {"SLURM_STEP_NODELIST", "gpu[07-08]"}};
const dist::Variables kSlurmBatch = {{"SLURM_JOB_ID", "4711"}, {"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "3"}};
const dist::Variables kPmi = {{"PMI_RANK", "1"}, {"PMI_SIZE", "2"}};
const dist::Variables kMlp = {{"MLP_WORKER_NUM", "2"},       {"MLP_WORKER_GPU", "8"},
                              {"MLP_ROLE_INDEX", "1"},       {"MLP_WORKER_0_HOST", "w0.cluster"},
                              {"MLP_WORKER_0_PORT", "2222"}, {"LOCAL_RANK", "3"}};

dist::Variables operator+(dist::Variables a, const dist::Variables& b) {
  for (const auto& [name, value] : b) a[name] = value;
  return a;
}

/// Returns a description, for comparison: "5 of 8, local 1, at 10.0.0.1:29500, job run7; RANK and
/// WORLD_SIZE".
std::string description_of(const dist::Launch& launch) {
  std::string text = fmt::format("{} of {}", launch.rank, launch.world_size);
  if (launch.local_rank) text += fmt::format(", local {}", *launch.local_rank);
  if (!launch.address.empty() || launch.port != 0)
    text += fmt::format(", at {}:{}", launch.address, launch.port);
  if (!launch.job.empty()) text += fmt::format(", job {}", launch.job);
  if (launch.by_mpi) text += ", MPI";
  text += "; " + launch.source;
  return launch.others.empty() ? text : fmt::format("{} ({} too)", text, fmt::join(launch.others, ", "));
}

struct Row {
  const char* name;
  dist::Variables variables;
  const char* description;
};

// The ports of Slurm's steps are 12000 + (16 * job + step) % 14000.
const Row kRows[] = {
    {"Torchrun", kTorchrun, "5 of 8, local 1, at 10.0.0.1:29500, job run7; RANK and WORLD_SIZE"},
    {"TorchrunWithAgentStore", kTorchrun + dist::Variables{{"TORCHELASTIC_USE_AGENT_STORE", "True"}},
     "5 of 8, local 1, at 10.0.0.1:29501, job run7; RANK and WORLD_SIZE"},
    {"RankAndWorldSizeOnly", {{"RANK", "0"}, {"WORLD_SIZE", "2"}}, "0 of 2; RANK and WORLD_SIZE"},
    {"OpenMpi", kOpenMpi, "3 of 4, local 1, job 123, MPI; OMPI_COMM_WORLD_*"},
    {"SlurmStep", kSlurmStep, "2 of 3, local 0, at gpu07:17378, job 4711.2; SLURM_*"},
    {"SlurmStepWithMasterAddress", kSlurmStep + dist::Variables{{"MASTER_ADDR", "ib0"}, {"MASTER_PORT", "5"}},
     "2 of 3, local 0, at ib0:5, job 4711.2; SLURM_*"},
    {"Pmi", kPmi, "1 of 2, MPI; PMI_*"},
    {"Mlp", kMlp, "11 of 16, local 3, at w0.cluster:2222; MLP_*"},
    {"MlpOneProcessPerNode", {{"MLP_WORKER_NUM", "3"}, {"MLP_ROLE_INDEX", "2"}}, "2 of 3, local 0; MLP_*"},
    {"MpirunInSlurmBatch", kOpenMpi + kSlurmBatch,
     "3 of 4, local 1, job 123, MPI; OMPI_COMM_WORLD_* (SLURM_* too)"},
    {"MpirunInSlurmStep", kOpenMpi + kSlurmStep,
     "3 of 4, local 1, job 123, MPI; OMPI_COMM_WORLD_* (SLURM_* too)"},
    {"SlurmWithPmi", kSlurmStep + kPmi, "2 of 3, local 0, at gpu07:17378, job 4711.2; SLURM_* (PMI_* too)"},
    {"MpirunOnMlp", kOpenMpi + dist::Variables{{"MLP_WORKER_NUM", "2"}, {"MLP_WORKER_GPU", "8"}},
     "3 of 4, local 1, job 123, MPI; OMPI_COMM_WORLD_* (MLP_* too)"},
    {"AllLaunchersAtOnce", kTorchrun + kOpenMpi + kSlurmStep + kPmi,
     "5 of 8, local 1, at 10.0.0.1:29500, job run7; RANK and WORLD_SIZE (OMPI_COMM_WORLD_*, SLURM_*, PMI_* too)"},
    {"SkipsIncompleteSource", kOpenMpi + dist::Variables{{"WORLD_SIZE", "9"}},
     "3 of 4, local 1, job 123, MPI; OMPI_COMM_WORLD_* (RANK and WORLD_SIZE too)"},
    {"IgnoresInvalidOuterSource", kTorchrun + dist::Variables{{"PMI_RANK", "7"}, {"PMI_SIZE", "2"}},
     "5 of 8, local 1, at 10.0.0.1:29500, job run7; RANK and WORLD_SIZE (PMI_* too)"},
    {"MpiexecInSlurmStepOfOneTask",
     kPmi + kSlurmStep + dist::Variables{{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}},
     "1 of 2, MPI; PMI_* (SLURM_* too)"},  // Hydra's proxy is such a step, and its children inherit the variables
    {"MpirunInPodOfOneRank", kOpenMpi + dist::Variables{{"RANK", "0"}, {"WORLD_SIZE", "1"}},
     "3 of 4, local 1, job 123, MPI; OMPI_COMM_WORLD_* (RANK and WORLD_SIZE too)"},
    {"OneRankInside",
     kOpenMpi + dist::Variables{{"OMPI_COMM_WORLD_RANK", "0"},
                                {"OMPI_COMM_WORLD_SIZE", "1"},
                                {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                {"OMPI_COMM_WORLD_LOCAL_SIZE", "1"},
                                {"RANK", "0"},
                                {"WORLD_SIZE", "1"}},
     "0 of 1; RANK and WORLD_SIZE (OMPI_COMM_WORLD_* too)"},
    {"LargeSlurmJob", kSlurmStep + dist::Variables{{"SLURM_JOB_ID", "4294000000"}},
     "2 of 3, local 0, at gpu07:20002, job 4294000000.2; SLURM_*"},
    {"ConvoyJobOverridesJob", kTorchrun + dist::Variables{{"CONVOY_JOB", "mine"}},
     "5 of 8, local 1, at 10.0.0.1:29500, job mine; RANK and WORLD_SIZE"},
    {"TreatsEmptyAsUnset", kPmi + dist::Variables{{"RANK", ""}, {"WORLD_SIZE", ""}}, "1 of 2, MPI; PMI_*"},
};

class Launches : public ::testing::TestWithParam<Row> {};

TEST_P(Launches, AreDetected) {
  const std::optional<dist::Launch> launch = dist::launch_from(GetParam().variables);
  ASSERT_TRUE(launch.has_value());
  EXPECT_EQ(description_of(*launch), GetParam().description);
}

INSTANTIATE_TEST_SUITE_P(All, Launches, ::testing::ValuesIn(kRows),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(LaunchFrom, TakesAnIpv6AddressInBrackets) {
  const dist::Variables variables = {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "7"}};
  const auto launch = [&](const char* address) {
    return dist::launch_from(variables + dist::Variables{{"MASTER_ADDR", address}});
  };
  EXPECT_EQ(launch("[::1]")->address, "::1");
  EXPECT_EQ(launch("::1")->address, "::1");
  EXPECT_THAT(
      message_of<UsageError>([&] { launch("node1:29500"); }),
      HasSubstr("found node1:29500, expected a name or an address without a port, which MASTER_PORT has"));
}

TEST(LaunchFrom, ReturnsNothingWithoutLauncher) {
  EXPECT_EQ(dist::launch_from({}), std::nullopt);
  EXPECT_EQ(dist::launch_from({{"HOME", "/root"}, {"LOCAL_RANK", "0"}, {"MASTER_ADDR", "x"}}), std::nullopt);
  EXPECT_EQ(dist::launch_from(kSlurmBatch), std::nullopt);  // a batch script is not a job step
  // Neither is a shell of salloc, which Slurm starts as a step with a reserved number.
  EXPECT_EQ(dist::launch_from(kSlurmStep + dist::Variables{{"SLURM_PROCID", "0"},
                                                           {"SLURM_STEP_NUM_TASKS", "1"},
                                                           {"SLURM_STEP_ID", "4294967290"}}),
            std::nullopt);
  EXPECT_EQ(dist::launch_from_rank(kOpenMpi), std::nullopt);
}

struct Refusal {
  const char* name;
  dist::Variables variables;
  const char* text;
};

const Refusal kRefusals[] = {
    {"RankWithoutWorldSize", {{"RANK", "0"}}, "RANK is set and WORLD_SIZE is not"},
    {"WorldSizeWithoutRank", {{"WORLD_SIZE", "4"}}, "WORLD_SIZE is set and RANK is not"},
    {"RankTooLarge", {{"RANK", "4"}, {"WORLD_SIZE", "4"}}, "RANK=4 contradicts WORLD_SIZE=4"},
    {"RankNegative", {{"RANK", "-1"}, {"WORLD_SIZE", "4"}}, "RANK=-1: found '-1', expected an integer"},
    {"NotANumber", {{"RANK", "0"}, {"WORLD_SIZE", "four"}}, "WORLD_SIZE=four"},
    {"TrailingCharacters", {{"RANK", "1x"}, {"WORLD_SIZE", "4"}}, "RANK=1x"},
    {"NumberOutOfRange", {{"RANK", "0"}, {"WORLD_SIZE", "99999999999999"}}, "WORLD_SIZE=99999999999999"},
    {"ZeroWorldSize", {{"RANK", "0"}, {"WORLD_SIZE", "0"}}, "expected an integer of 1 or more"},
    {"LocalRankTooLarge", kTorchrun + dist::Variables{{"LOCAL_RANK", "4"}},
     "LOCAL_RANK=4 contradicts LOCAL_WORLD_SIZE=4"},
    {"LocalWorldSizeTooLarge", kTorchrun + dist::Variables{{"LOCAL_WORLD_SIZE", "9"}},
     "LOCAL_WORLD_SIZE=9 contradicts WORLD_SIZE=8"},
    {"PortTooLarge", kTorchrun + dist::Variables{{"MASTER_PORT", "65536"}}, "at most 65535"},
    {"PortIsNotANumber", kTorchrun + dist::Variables{{"MASTER_PORT", "http"}}, "MASTER_PORT=http"},
    {"OpenMpiWithoutRank", {{"OMPI_COMM_WORLD_SIZE", "2"}}, "OMPI_COMM_WORLD_RANK is not"},
    {"SlurmRankTooLarge", kSlurmStep + dist::Variables{{"SLURM_PROCID", "3"}},
     "SLURM_PROCID=3 contradicts SLURM_STEP_NUM_TASKS=3"},
    {"MlpWithoutLocalRank", {{"MLP_WORKER_NUM", "2"}, {"MLP_WORKER_GPU", "8"}}, "LOCAL_RANK is not"},
    {"MlpNodeTooLarge", kMlp + dist::Variables{{"MLP_ROLE_INDEX", "2"}}, "MLP_ROLE_INDEX=2 contradicts"},
    {"MlpLocalRankTooLarge", kMlp + dist::Variables{{"LOCAL_RANK", "8"}}, "LOCAL_RANK=8 contradicts"},
};

TEST(SlurmPorts, OfStepsWithTheSameFirstPortDifferAfterIt) {
  const auto launch_of = [](const char* job) {
    return *dist::launch_from(kSlurmStep + dist::Variables{{"SLURM_JOB_ID", job}});
  };
  const dist::Launch one = launch_of("1000"), other = launch_of("1875");  // 14000 / 16 jobs later
  EXPECT_EQ(one.port, other.port);
  ASSERT_EQ(one.other_ports.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_NE(one.other_ports[i], other.other_ports[i]);
    EXPECT_GE(one.other_ports[i], 12000);
    EXPECT_LT(one.other_ports[i], 26000);
  }
  EXPECT_EQ(launch_of("1000").other_ports, one.other_ports);
  EXPECT_EQ(dist::plan_rendezvous("auto", kSlurmStep).launch.other_ports,
            dist::launch_from(kSlurmStep)->other_ports);
  const auto with_port = dist::launch_from(kSlurmStep + dist::Variables{{"MASTER_PORT", "5"}});
  EXPECT_TRUE(with_port->other_ports.empty());
}

class RefusedLaunches : public ::testing::TestWithParam<Refusal> {};

TEST_P(RefusedLaunches, ReportTheReason) {
  const std::string error = message_of<UsageError>([] { dist::launch_from(GetParam().variables); });
  EXPECT_THAT(error, HasSubstr(GetParam().text));
  EXPECT_THAT(error, ::testing::Not(HasSubstr("\n")));
}

INSTANTIATE_TEST_SUITE_P(All, RefusedLaunches, ::testing::ValuesIn(kRefusals),
                         [](const auto& row) { return std::string(row.param.name); });

TEST(FirstHostOf, ParsesSlurmNodeLists) {
  EXPECT_EQ(dist::first_host_of("node7"), "node7");
  EXPECT_EQ(dist::first_host_of("node7,node3"), "node7");
  EXPECT_EQ(dist::first_host_of("gpu[003-006,9],x1"), "gpu003");
  EXPECT_EQ(dist::first_host_of("gpu[9,3]-ib,x1"), "gpu9-ib");
  EXPECT_EQ(dist::first_host_of("rack[1-2]node[0-3]"), "rack1node0");
  EXPECT_EQ(dist::first_host_of(""), "");
}

TEST(Endpoint, ParsesHostAndPort) {
  EXPECT_EQ(dist::parse_endpoint("node7:29500"), (dist::Endpoint{"node7", 29500}));
  EXPECT_EQ(dist::parse_endpoint("10.0.0.1:1"), (dist::Endpoint{"10.0.0.1", 1}));
  EXPECT_EQ(dist::parse_endpoint("[fe80::1]:65535"), (dist::Endpoint{"fe80::1", 65535}));
  EXPECT_EQ(dist::parse_endpoint("[fe80::1]:65535").text(), "[fe80::1]:65535");
  for (const char* wrong : {"", "node7", "node7:", ":29500", "node7:0", "node7:65536", "node7:x", "node7:1x",
                            "fe80::1:29500", "[]:1", "node7:-1"})
    EXPECT_THAT(message_of<UsageError>([&] { dist::parse_endpoint(wrong); }),
                HasSubstr("expected tcp://HOST:PORT"))
        << wrong;
}

/// Returns "tcp 10.0.0.1:29500, 5 of 8, job run7, environment; NOTE".
std::string plan_text(const char* init_method, const dist::Variables& variables) {
  const dist::RendezvousPlan plan = dist::plan_rendezvous(init_method, variables);
  constexpr const char* kMethods[] = {"single_process", "mpi", "tcp", "file"};
  std::string text = kMethods[static_cast<std::size_t>(plan.method)] + (" " + plan.path);
  if (plan.endpoint.port != 0) text += plan.endpoint.text();
  return fmt::format("{}, {} of {}, job {}, {}; {}", text, plan.launch.rank, plan.launch.world_size,
                     plan.launch.job, plan.source, plan.note);
}

TEST(RendezvousPlan, FollowsTheLauncher) {
  EXPECT_EQ(plan_text("auto", kTorchrun),
            "tcp 10.0.0.1:29500, 5 of 8, job run7, environment; RANK and WORLD_SIZE, tcp://10.0.0.1:29500");
  EXPECT_EQ(plan_text("auto", kOpenMpi + kSlurmBatch),
            "mpi , 3 of 4, job 123, mpi; OMPI_COMM_WORLD_*, MPI; SLURM_* too");
  EXPECT_EQ(plan_text("auto", {}), "single_process , 0 of 1, job , one process; one process");
  EXPECT_EQ(plan_text("auto", {{"RANK", "0"}, {"WORLD_SIZE", "1"}}),
            "single_process , 0 of 1, job , environment; RANK and WORLD_SIZE");
}

TEST(RendezvousPlan, FlagOverridesLauncher) {
  EXPECT_EQ(plan_text("tcp://node7:1234", kOpenMpi),
            "tcp node7:1234, 3 of 4, job 123, tcp; OMPI_COMM_WORLD_*, tcp://node7:1234");
  EXPECT_EQ(
      plan_text("file:///shared/rendezvous", kTorchrun),
      "file /shared/rendezvous, 5 of 8, job run7, file; RANK and WORLD_SIZE, file:///shared/rendezvous");
  EXPECT_EQ(plan_text("mpi", kTorchrun),
            "mpi , 0 of 0, job , mpi; rendezvous by MPI");  // MPI provides the size
  EXPECT_EQ(plan_text("mpi", kOpenMpi), "mpi , 3 of 4, job 123, mpi; OMPI_COMM_WORLD_*, MPI");
  EXPECT_THAT(plan_text("env", kTorchrun + kOpenMpi), ::testing::StartsWith("tcp "));
}

TEST(RendezvousPlan, RejectsIncompleteOrInvalidSettings) {
  const auto error_of = [](const char* where, const dist::Variables& variables) {
    return message_of<UsageError>([&] { dist::plan_rendezvous(where, variables); });
  };
  EXPECT_THAT(error_of("auto", {{"RANK", "0"}, {"WORLD_SIZE", "2"}}), HasSubstr("MASTER_ADDR is not set"));
  EXPECT_THAT(error_of("auto", {{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "x"}}),
              HasSubstr("MASTER_PORT is not set"));
  EXPECT_THAT(error_of("env", kOpenMpi), HasSubstr("RANK and WORLD_SIZE are not set"));
  EXPECT_THAT(error_of("tcp://node7:1234", {}), HasSubstr("set RANK and WORLD_SIZE"));
  EXPECT_THAT(error_of("tcp://node7", kTorchrun), HasSubstr("expected tcp://HOST:PORT"));
  EXPECT_THAT(error_of("file://rendezvous", kTorchrun), HasSubstr("an absolute path"));
  EXPECT_THAT(error_of("udp://node7:1", kTorchrun),
              HasSubstr("found 'udp://node7:1', expected auto, mpi, tcp:"));
  EXPECT_THAT(error_of("", kTorchrun), HasSubstr("expected auto"));
}

}  // namespace
}  // namespace convoy::testing
