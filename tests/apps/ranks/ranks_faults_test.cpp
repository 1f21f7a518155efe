// Tests of inconsistent, failing, killed and stopped ranks: each rank reports its error in one line, and all
// ranks exit.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/socket.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <set>
#include <sstream>
#include <thread>

#include "convoy/comm/cluster/net/socket.h"
#include "convoy/version.h"
#include "tests/apps/fault_record.h"
#include "tests/apps/job_traces.h"
#include "tests/apps/rank_runs.h"
#include "tests/comm/bit_flipper.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

using ::testing::AnyOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;
using ::testing::StartsWith;

/// Returns the error lines of convoy-train, without those of mpirun.
std::vector<std::string> errors_of(const ProcessResult& result) {
  std::vector<std::string> errors;
  std::istringstream lines(result.err);
  for (std::string line; std::getline(lines, line);)
    if (line.find("convoy-train: error: ") != std::string::npos) errors.push_back(line);
  return errors;
}

/// Expects that all of `ranks` ranks exit with code 2 and `message`. mpirun may end a rank before it prints.
void expect_usage_error_of_all_ranks(const ProcessResult& result, std::size_t ranks,
                                     const std::string& message) {
  EXPECT_EQ(result.exit_code, 2) << result.err;
  const std::vector<std::string> errors = errors_of(result);
  EXPECT_FALSE(errors.empty()) << result.err;
  std::set<std::string> reporting;
  for (const std::string& error : errors) {
    EXPECT_THAT(error, StartsWith("convoy-train: error: [rank "));
    EXPECT_THAT(error, HasSubstr(message));
    reporting.insert(error.substr(0, error.find(']')));
  }
  EXPECT_THAT(reporting, SizeIs(errors.size())) << "a rank has printed twice: " << result.err;
  EXPECT_LE(reporting.size(), ranks);
}

/// Runs `first` as rank 0 and `second` as rank 1 under one mpirun.
ProcessResult run_two(const Arguments& first, const Arguments& second) {
  Arguments command = mpirun(1, first);
  command.insert(command.end(), {":", "-n", "1"});
  command.insert(command.end(), second.begin(), second.end());
  const TempDirectory session;
  return run_program(command, {.environment = mpirun_environment(session)});
}

class RankFaults : public ::testing::Test {
 protected:
  Arguments arguments(const std::string& out, const Arguments& more = {}) const {
    return workshop.train_arguments(out, more);
  }

  Workshop workshop;
};

TEST_F(RankFaults, ReportAddressOfMissingRankZero) {
  const int port = free_port();
  const ProcessResult result =
      run_program(arguments("run", {"--comm-timeout", "1"}), {.environment = rank_environment(1, 2, port)});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(errors_of(result), SizeIs(1));
  EXPECT_THAT(result.err,
              HasSubstr("rank 1 waited 1 s for rank 0 at tcp://127.0.0.1:" + std::to_string(port)));
}

TEST_F(RankFaults, ReportWhyTheNameOfRankZeroDoesNotAnswer) {
  Environment environment = rank_environment(1, 2, free_port());
  environment["MASTER_ADDR"] = "localhost";
  const ProcessResult result =
      run_program(arguments("run", {"--comm-timeout", "2"}), {.environment = environment});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("Connection refused"));
}

TEST_F(RankFaults, ReportMissingRank) {
  const ProcessResult result = run_program(arguments("run", {"--comm-timeout", "1"}),
                                           {.environment = rank_environment(0, 2, free_port())});
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(errors_of(result), SizeIs(1));
  EXPECT_THAT(result.err, HasSubstr("rank 0 has joined, rank 1 is missing"));
}

TEST_F(RankFaults, RefuseDuplicateRank) {
  const int port = free_port();
  const Arguments program = arguments("run", {"--comm-timeout", "3"});
  std::vector<std::unique_ptr<Process>> ranks;
  for (const int rank : {0, 1, 1})
    ranks.push_back(
        std::make_unique<Process>(program, ProcessOptions{.environment = rank_environment(rank, 3, port)}));
  int refused = 0;
  for (const auto& rank : ranks) {
    const ProcessResult result = rank->wait();
    EXPECT_THAT(errors_of(result), SizeIs(1));
    const bool is_refused = result.err.find("a rank 1 has already joined") != std::string::npos;
    refused += is_refused ? 1 : 0;
    EXPECT_THAT(result.exit_code, AnyOf(2, 4)) << result.err;
    EXPECT_THAT(result.err, AnyOf(HasSubstr("a rank 1 has already joined"), HasSubstr("rank 2 is missing")));
  }
  EXPECT_EQ(refused, 1);
}

TEST_F(RankFaults, ReportPortInUse) {
  const dist::Socket taken(::socket(AF_INET, SOCK_STREAM, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  socklen_t bytes = sizeof address;
  ASSERT_EQ(::bind(taken.descriptor(), reinterpret_cast<sockaddr*>(&address), bytes), 0);
  ASSERT_EQ(::listen(taken.descriptor(), 1), 0);
  ASSERT_EQ(::getsockname(taken.descriptor(), reinterpret_cast<sockaddr*>(&address), &bytes), 0);
  const int port = ntohs(address.sin_port);
  const ProcessResult result =
      run_program(arguments("run", {"--comm-timeout", "2"}), {.environment = rank_environment(0, 2, port)});
  EXPECT_THAT(result.exit_code, AnyOf(2, 4)) << result.err;
  EXPECT_THAT(errors_of(result), SizeIs(1));
  EXPECT_THAT(result.err, HasSubstr(std::to_string(port)));
  EXPECT_THAT(result.err, HasSubstr("in use"));
}

TEST_F(RankFaults, RefuseDifferentFlags) {
  const ProcessResult result = run_two(arguments("run", {"--lr", "0.1"}), arguments("run", {"--lr", "0.2"}));
  expect_usage_error_of_all_ranks(result, 2, "--lr 0.2, rank 0 has 0.1");
  for (const char* flag : {"--allreduce=ring", "--link-latency=3", "--link-bandwidth=12"}) {
    std::string words = flag;
    words.replace(words.find('='), 1, " ");
    const ProcessResult by_messages = run_two(arguments("run", {flag}), arguments("run"));
    expect_usage_error_of_all_ranks(by_messages, 2, "the ranks have different flags: found --allreduce ");
    EXPECT_THAT(by_messages.err, HasSubstr(words));
  }
  EXPECT_FALSE(std::filesystem::exists(workshop.path("run"))) << "something was written";
}

/// The other version is this one with another text for its version, in a copy of the library.
TEST_F(RankFaults, RefuseAnotherVersion) {
  const std::string library = "libconvoy_train.so.0.1", other = "0.1.9";
  std::string bytes =
      read_text(std::filesystem::path(program("convoy-train")).parent_path() / "../apps" / library);
  const std::size_t version = bytes.find(std::string(kVersion) + '\0');
  ASSERT_NE(version, std::string::npos);
  ASSERT_EQ(other.size(), std::string(kVersion).size());
  bytes.replace(version, other.size(), other);
  std::ofstream(workshop.path(library), std::ios::binary) << bytes;
  const std::string libraries = "LD_LIBRARY_PATH=" + workshop.directory().path().string();
  const ProcessResult result = run_two(arguments("run"), with({"/usr/bin/env", libraries}, arguments("run")));
  expect_usage_error_of_all_ranks(result, 2, "rank 1 has version 0.1.9, rank 0 has " + std::string(kVersion));
  EXPECT_FALSE(std::filesystem::exists(workshop.path("run"))) << "something was written";
}

TEST_F(RankFaults, TakeResumeFromRankZero) {
  ASSERT_EQ(run_by_mpi(2, arguments("run", {"--epochs", "1"})).exit_code, 0);
  const ProcessResult result =
      run_two(arguments("run", {"--epochs", "2", "--resume", "auto"}), arguments("run", {"--epochs", "2"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("resuming from"));
}

TEST_F(RankFaults, WarnOnceOfVariablesThatContradictMpirun) {
  Arguments program = {"/usr/bin/env", "RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                       "MASTER_PORT=" + std::to_string(free_port())};
  const Arguments training = arguments("run", {"--comm-timeout", "2"});
  program.insert(program.end(), training.begin(), training.end());
  const ProcessResult result = run_by_mpi(2, program);  // both processes are rank 0
  EXPECT_NE(result.exit_code, 0);
  const std::string warning = "warning: RANK=0 and WORLD_SIZE=2 take precedence over OMPI_COMM_WORLD_RANK=1";
  const std::size_t at = result.err.find(warning);
  ASSERT_NE(at, std::string::npos) << result.err;
  EXPECT_EQ(result.err.find("take precedence", at + warning.size()), std::string::npos) << result.err;
  EXPECT_THAT(result.err.substr(at), HasSubstr("unset RANK WORLD_SIZE"));
}

TEST_F(RankFaults, RefuseDifferentModels) {
  const ProcessResult result = run_two(arguments("run"), arguments("run", {"--model", "resnet20"}));
  expect_usage_error_of_all_ranks(result, 2, "--model resnet20, rank 0 has lenet");
}

TEST_F(RankFaults, RefuseDifferentData) {
  write_digits(workshop.path("more"), 330);
  const ProcessResult result = run_two(arguments("run"), arguments("run", {"--data", workshop.path("more")}));
  expect_usage_error_of_all_ranks(result, 2, "training data 330 images");
  EXPECT_THAT(result.err, HasSubstr("rank 0 has 320 images"));
}

TEST_F(RankFaults, ReportCommonMistake) {
  const ProcessResult result = run_by_mpi(3, arguments("run", {"--schedule", "cosin"}));
  expect_usage_error_of_all_ranks(result, 3, "did you mean 'cosine'?");
}

/// Under mpirun, too, a rank reports its error and exits at once.
TEST_F(RankFaults, ReportWithoutDelay) {
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult result =
      run_program(arguments("run", {"--schedule", "cosin"}),
                  {.environment = {{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}});
  EXPECT_EQ(result.exit_code, 2) << result.err;
  EXPECT_THAT(errors_of(result), ElementsAre(StartsWith("convoy-train: error: [rank 1] --schedule: ")));
  // A process takes a fraction of a second. Ranks that let rank 0 report first waited 10 s.
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(8));
}

TEST_F(RankFaults, FailureOfOneRankEndsAll) {
  const Arguments program = arguments("run", {"--comm-timeout", "60"});
  const Arguments without_data =
      arguments("run", {"--comm-timeout", "60", "--data", workshop.path("absent")});
  // Under mpirun, which returns the exit code of the first rank that exits.
  const ProcessResult together = run_two(program, without_data);
  EXPECT_THAT(together.exit_code, AnyOf(3, 4)) << together.err;
  EXPECT_THAT(together.err, HasSubstr("convoy-train: error: [rank 1] --data: "));
  // Without mpirun: the failed rank reports the cause, and the other rank reports which rank failed.
  const int port = free_port();
  Process first(program, {.environment = rank_environment(0, 2, port)});
  Process second(without_data, {.environment = rank_environment(1, 2, port)});
  const ProcessResult peer = first.wait(), cause = second.wait();
  EXPECT_EQ(cause.exit_code, 3) << cause.err;
  EXPECT_THAT(errors_of(cause), ElementsAre(StartsWith("convoy-train: error: [rank 1] --data: ")));
  EXPECT_EQ(peer.exit_code, 4) << peer.err;
  EXPECT_THAT(errors_of(peer), ElementsAre(StartsWith("convoy-train: error: [rank 0] ")));
  EXPECT_THAT(peer.err, HasSubstr("rank 1: --data: "));
}

TEST_F(RankFaults, KilledRankEndsTheOthers) {
  const int port = free_port();
  const Arguments program = arguments("run", {"--max-steps", "100000", "--comm-timeout", "300"});
  Process first(program, {.environment = rank_environment(0, 2, port)});
  Process second(program, {.environment = rank_environment(1, 2, port)});
  wait_for_step(workshop, "run", 3);
  second.send(SIGKILL);
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult result = first.wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(60)) << "the deadline is 300 s";
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(errors_of(result), SizeIs(1));
  EXPECT_THAT(result.err, HasSubstr("rank 1"));
}

/// This process flips bits in the memory that the ranks share, where rank 0 has stored what rank 1 sums.
TEST_F(RankFaults, FlippedBitEndsAllRanksWithRankBucketAndStep) {
  const int port = free_port();
  const Arguments program = arguments("run", {"--max-steps", "100000", "--comm", "shm"});
  Process first(program, {.environment = rank_environment(0, 2, port)});
  Process second(program, {.environment = rank_environment(1, 2, port)});
  wait_for_step(workshop, "run", 3);  // the parameters have been sent by now
  // Behind three pages of counters, rank 0 has a buffer of 128 KiB, of which rank 1 sums the second half.
  constexpr std::size_t kPage = 4096, kFirst = 3 * kPage + (std::size_t{96} << 10);
  BitFlipper flipper(first.id());
  for (std::size_t at = 0; first.running() && second.running(); at = (at + 4) % (std::size_t{16} << 10))
    flipper.flip(kFirst + at);
  std::set<std::string> steps;
  for (Process* const rank : {&first, &second}) {
    const ProcessResult result = rank->wait();
    EXPECT_EQ(result.exit_code, 4) << result.err;
    const std::vector<std::string> errors = errors_of(result);
    ASSERT_THAT(errors, SizeIs(1)) << result.err;
    EXPECT_THAT(errors.front(), HasSubstr(" f32), bucket "));
    EXPECT_THAT(errors.front(), HasSubstr(": rank 0 sent a contribution with the checksum "));
    EXPECT_THAT(errors.front(), HasSubstr(" to rank 1, which received "));
    steps.insert(errors.front().substr(errors.front().rfind(", step ")));
  }
  // Rank 0 has logged all steps before that one.
  EXPECT_THAT(steps, ElementsAre(", step " + std::to_string(steps_of(workshop, "run") + 1) + ")"));
}

TEST_F(RankFaults, StopSignalOfOneRankStopsAllAfterTheSameStep) {
  const Arguments flags = {"--epochs", "8", "--eval-every", "0", "--precision", "fp64", "--deterministic"};
  const std::string expected = train_on(workshop, "whole", 2, "shm", flags).hash;

  ProcessResult stopped;
  std::string out;
  for (int trial = 0; trial < 5 && stopped.exit_code != 128 + SIGUSR1;
       ++trial) {  // it may end before the signal
    out = "run" + std::to_string(trial);
    const int port = free_port();
    const Arguments program = arguments(out, flags);
    Process first(program, {.environment = rank_environment(0, 2, port)});
    Process second(program, {.environment = rank_environment(1, 2, port)});
    wait_for_step(workshop, out, 3);
    second.send(SIGUSR1);
    stopped = first.wait();
    EXPECT_EQ(second.wait().exit_code, stopped.exit_code) << stopped.err;
  }
  ASSERT_EQ(stopped.exit_code, 128 + SIGUSR1) << stopped.out << stopped.err;
  EXPECT_THAT(stopped.out, HasSubstr("checkpoint saved"));

  Arguments resumed = flags;
  resumed.insert(resumed.end(), {"--resume", "auto"});
  EXPECT_EQ(train_on(workshop, out, 2, "shm", resumed).hash, expected)
      << "differs from the uninterrupted run";
}

/// The numbers of ranks before mpirun is killed and after the resume.
class KilledMpirun : public RankFaults, public ::testing::WithParamInterface<std::pair<int, int>> {};
INSTANTIATE_TEST_SUITE_P(Ranks, KilledMpirun,
                         ::testing::Values(std::pair(2, 2), std::pair(2, 4), std::pair(4, 2)),
                         [](const auto& test) {
                           return std::to_string(test.param.first) + "Then" +
                                  std::to_string(test.param.second);
                         });

/// The ranks exit when they detect the end of mpirun. A run that is killed and resumed equals an uninterrupted one,
/// with the same or another world size.
TEST_P(KilledMpirun, LeavesNothingAndTheResumedRunEqualsAnUninterruptedOne) {
  const auto [before, after] = GetParam();
  const Arguments flags = {"--epochs",     "6", "--eval-every", "0", "--precision", "fp64", "--deterministic",
                           "--save-every", "4"};
  const Outcome whole = train_on(workshop, "whole", before, "shm", flags);
  JobTraces traces(workshop.path("killed"));
  {
    const TempDirectory session;
    Process job(mpirun(before, arguments("killed", flags)), {.environment = mpirun_environment(session)});
    wait_for_step(workshop, "killed", 11);
    traces.observe();
    job.send(SIGKILL);
    const FaultRecord record("mpirun is killed");
    ASSERT_EQ(job.wait().signal, SIGKILL) << "the training was complete before the signal";
    // Open MPI itself leaves the files of its messages on one host. A rank that it ends cannot remove them.
    EXPECT_THAT(traces.remaining(std::chrono::seconds(10), "/dev/shm/vader_segment."), ::testing::IsEmpty());
    if (!HasFailure())
      record.print("the ranks exit, and leave no process, socket file or shared memory", kLostSteps);
  }
  Arguments resumed = flags;
  resumed.insert(resumed.end(), {"--resume", "auto"});
  const Outcome outcome = train_on(workshop, "killed", after, "shm", resumed);
  ASSERT_EQ(outcome.losses.size(), whole.losses.size());
  for (std::size_t step = 0; step < whole.losses.size(); ++step)
    EXPECT_NEAR(outcome.losses[step], whole.losses[step], 1e-9 * whole.losses[step]) << "step " << step + 1;
  EXPECT_EQ(outcome.samples, whole.samples);
  if (before == after) {
    EXPECT_EQ(outcome.hash, whole.hash);
  }
}

}  // namespace
}  // namespace convoy::testing
