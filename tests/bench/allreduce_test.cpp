// Tests of convoy-bench-allreduce with each launcher: one process, mpirun (with MPI as baseline), environment
// variables, and --devices.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convoy/version.h"
#include "tests/apps/rank_runs.h"
#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr const char* kEveryCollective = "all_reduce,reduce_scatter,all_gather,broadcast";

class Allreduce : public ::testing::Test {
 protected:
  /// Returns a command line for few collectives on the CPU, followed by `more`.
  Arguments arguments(const Arguments& more = {}) const {
    Arguments all = {
        program("convoy-bench-allreduce"), "-n3", "-w1", "--device=cpu", "--threads=1", "--comm-timeout=60"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  std::string json_file() const { return directory.path() / "result.json"; }
  Json json() const { return Json::parse(read_text(json_file())); }

  TempDirectory directory;
};

/// Returns the words of each line that is not a comment, as a script that parses nccl-tests does.
std::vector<std::vector<std::string>> rows_of(const std::string& out) {
  std::vector<std::vector<std::string>> rows;
  std::istringstream lines(out);
  for (std::string line; std::getline(lines, line);) {
    if (line.empty() || line.starts_with('#')) continue;
    std::istringstream in(line);
    rows.emplace_back();
    for (std::string word; in >> word;) rows.back().push_back(word);
  }
  return rows;
}

/// Expects that every row has all columns, positive times and no wrong elements.
void expect_sound(const ProcessResult& result, std::size_t rows, std::size_t columns = 13) {
  ASSERT_EQ(result.exit_code, 0) << result.out << result.err;
  const auto found = rows_of(result.out);
  EXPECT_EQ(found.size(), rows) << result.out;
  for (const auto& row : found) {
    ASSERT_EQ(row.size(), columns) << result.out;
    for (const std::size_t placement : {5U, 9U}) {
      EXPECT_GT(std::stod(row[placement]), 0) << result.out;
      EXPECT_EQ(row[placement + 3], "0") << result.out;
    }
  }
  EXPECT_THAT(result.out, HasSubstr("# Out of bounds values : 0 OK"));
  EXPECT_THAT(result.out, HasSubstr("# Avg bus bandwidth"));
}

TEST_F(Allreduce, RunsWithOneRank) {
  const ProcessResult result = run_program(
      arguments({"-b", "8", "-e", "8K", "-f", "32", "-d", "all", "--collective", kEveryCollective}));
  expect_sound(result, 4 * 5 * 3);
  EXPECT_THAT(result.out, HasSubstr("one process, self"));
  EXPECT_EQ(result.err, "");
}

TEST_F(Allreduce, ComparesWithMpi) {
  const ProcessResult result =
      run_by_mpi(2, arguments({"-b", "4", "-e", "100000", "-f", "100", "--collective", kEveryCollective,
                               "--beside-mpi", "--rounds", "3", "--percentiles", "--json", json_file()}));
  expect_sound(result, 4 * 3, 17);
  EXPECT_THAT(result.out, HasSubstr("2 on 1 host, shm; rendezvous: OMPI_COMM_WORLD_*"));
  const Json found = json();
  EXPECT_EQ(found["backend"], "shm");
  EXPECT_EQ(found["ranks"], 2);
  EXPECT_EQ(found["out_of_bounds"], 0);
  ASSERT_EQ(found["rows"].size(), 12U);
  for (const Json& row : found["rows"])
    for (const char* placement : {"out_of_place", "in_place"}) {
      const Json& own = row[placement];
      const Json& mpi = own["mpi"];
      EXPECT_EQ(own["wrong"], 0);
      EXPECT_EQ(mpi["wrong"], 0) << row.dump();
      EXPECT_EQ(mpi["rounds"], 3);
      EXPECT_GT(mpi["time_us"].get<double>(), 0);
      EXPECT_GT(mpi["lowest"].get<double>(), 0);
      EXPECT_LE(mpi["lowest"].get<double>(), mpi["ratio"].get<double>());
      EXPECT_LE(mpi["ratio"].get<double>(), mpi["highest"].get<double>());
      EXPECT_LE(own["p50_us"].get<double>(), own["p99_us"].get<double>());
      EXPECT_NEAR(own["algbw"].get<double>() * own["time_us"].get<double>() * 1e3, row["size"].get<double>(),
                  1e-3);
    }
  // The table has the same values with fewer digits.
  const auto rows = rows_of(result.out);
  for (std::size_t i = 0; i < rows.size(); ++i) {
    EXPECT_EQ(rows[i][0], found["rows"][i]["size"].dump());
    EXPECT_EQ(rows[i][1], found["rows"][i]["count"].dump());
    EXPECT_NEAR(std::stod(rows[i][5]), found["rows"][i]["out_of_place"]["time_us"].get<double>(), 0.51);
  }
}

TEST_F(Allreduce, RunsThroughMpiAndTcp) {
  const Arguments flags = {"-b", "16", "-e", "80000", "-f", "50", "--collective", kEveryCollective};
  const auto with = [&](const char* comm) {
    Arguments more = flags;
    more.insert(more.end(), {"--comm", comm});
    return arguments(more);
  };
  const ProcessResult by_mpi = run_by_mpi(3, with("mpi"));
  expect_sound(by_mpi, 4 * 3);
  EXPECT_THAT(by_mpi.out, HasSubstr("3 on 1 host, mpi; all-reduce: auto;"));
  const std::vector<ProcessResult> by_hand = run_by_hand(2, with("tcp"));
  expect_sound(by_hand[0], 4 * 3);
  EXPECT_THAT(by_hand[0].out, HasSubstr("2 on 1 host, tcp; all-reduce: auto;"));
  EXPECT_EQ(by_hand[1].exit_code, 0) << by_hand[1].err;
  EXPECT_EQ(by_hand[1].out, "") << "only rank 0 prints";
  Arguments by_ring = with("tcp"), on_shm = with("shm");
  by_ring.insert(by_ring.end(), {"--allreduce", "ring"});
  on_shm.insert(on_shm.end(), {"--allreduce", "ring"});
  const ProcessResult ring = run_by_hand(3, by_ring)[0];
  expect_sound(ring, 4 * 3);
  EXPECT_THAT(ring.out, HasSubstr("3 on 1 host, tcp; all-reduce: ring;"));
  const ProcessResult refused = run_by_hand(2, on_shm)[0];
  EXPECT_EQ(refused.exit_code, 2);
  EXPECT_THAT(refused.err,
              HasSubstr("--allreduce ring: found --comm shm and --device cpu, expected mpi, tcp or auto"));
}

TEST_F(Allreduce, RunsOnThreads) {
  const ProcessResult result = run_program(
      arguments({"-b", "1K", "-e", "1K", "--devices", "2", "--collective", "broadcast", "-r", "all"}));
  expect_sound(result, 2);
  EXPECT_THAT(result.out, HasSubstr("2 on 1 host, thread; rendezvous: 2 threads of one process"));
  const auto rows = rows_of(result.out);
  EXPECT_EQ(rows[0][4], "0");
  EXPECT_EQ(rows[1][4], "1");
  EXPECT_EQ(rows[0][3], "none");
}

TEST_F(Allreduce, MpiComparisonRequiresMpirun) {
  const ProcessResult alone = run_program(arguments({"--beside-mpi"}));
  EXPECT_EQ(alone.exit_code, 2);
  EXPECT_THAT(alone.err, HasSubstr("--beside-mpi: the ranks were not initialized through MPI (one process"));
  EXPECT_EQ(std::count(alone.err.begin(), alone.err.end(), '\n'), 1) << alone.err;
  const ProcessResult half_precision = run_by_mpi(2, arguments({"--beside-mpi", "-d", "half"}));
  EXPECT_EQ(half_precision.exit_code, 2);
  EXPECT_THAT(half_precision.err, HasSubstr("--beside-mpi: MPI has no sum of half"));
}

TEST_F(Allreduce, RejectsInvalidFlags) {
  struct Mistake {
    Arguments flags;
    const char* message;
    int ranks = 1;  // each prints one line
  };
  const Mistake mistakes[] = {
      {{"--op", "max"}, "--op: found 'max', expected sum"},
      {{"-b", "8Q"}, "--minbytes: found '8Q', expected bytes"},
      {{"--minbyte", "8"}, "--minbyte: unknown flag; did you mean '--minbytes'?"},
      {{"-x", "2"}, "-x: unknown flag"},
      {{"-r", "1", "--collective", "broadcast"},
       "--root: found 1, expected a rank below the world size of 1"},
      {{"--comm", "nccl"}, "--comm nccl: found --device cpu"},
      {{"--devices", "2", "--beside-mpi"}, "--beside-mpi: the ranks were not initialized", 2}};
  for (const Mistake& mistake : mistakes) {
    const ProcessResult result = run_program(arguments(mistake.flags));
    EXPECT_EQ(result.exit_code, 2) << mistake.message << result.out;
    EXPECT_THAT(result.err, StartsWith("convoy-bench-allreduce: error: "));
    EXPECT_THAT(result.err, HasSubstr(mistake.message));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), mistake.ranks) << result.err;
  }
  const ProcessResult nowhere = run_program(arguments({"-b", "8", "-e", "8", "--json", "/proc/result.json"}));
  EXPECT_EQ(nowhere.exit_code, 8);
  EXPECT_THAT(nowhere.err, HasSubstr("/proc/"));
}

TEST_F(Allreduce, RanksWithDifferentFlagsExitWithAnError) {
  const int port = free_port();
  Process first(arguments({"-b", "8", "-e", "8"}), {.environment = rank_environment(0, 2, port)});
  Process second(arguments({"-b", "4", "-e", "8"}), {.environment = rank_environment(1, 2, port)});
  for (Process* process : {&first, &second}) {
    const ProcessResult result = process->wait();
    EXPECT_EQ(result.exit_code, 2) << result.out;
    EXPECT_THAT(result.err, HasSubstr("rank 1 has --minbytes 4, rank 0 has 8"));
  }
}

TEST_F(Allreduce, NamesTheMissingRankAfterATimeout) {
  Arguments lonely = arguments({});
  lonely.back() = "--comm-timeout=1";  // second
  const ProcessResult result = run_program(lonely, {.environment = rank_environment(0, 2, free_port())});
  EXPECT_EQ(result.exit_code, 4) << result.out;
  EXPECT_THAT(result.err, HasSubstr("rank 1"));
}

TEST_F(Allreduce, PrintsHelpAndVersion) {
  const ProcessResult help = run_program({program("convoy-bench-allreduce"), "--help"});
  EXPECT_EQ(help.exit_code, 0);
  for (const char* text :
       {"-b, --minbytes BYTES", "-n, --iters N", "[default: 32M]", "--[no-]beside-mpi", "--devices N"})
    EXPECT_THAT(help.out, HasSubstr(text));
  const ProcessResult version = run_program({program("convoy-bench-allreduce"), "--version"});
  EXPECT_THAT(version.out, ::testing::StartsWith(std::string("convoy-bench-allreduce ") + kVersion + "\n"));
}

}  // namespace
}  // namespace convoy::testing
