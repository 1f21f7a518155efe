#include "tests/apps/rank_runs.h"

#include <gtest/gtest.h>

#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>

#include "tests/testing/support/free_port.h"

namespace convoy::testing {
namespace {

Outcome outcome_of(const Workshop& workshop, const std::string& out) {
  Outcome outcome;
  for (const Json& step : workshop.events(out, "step")) {
    outcome.losses.push_back(step["loss"]);
    outcome.samples = step["samples"];
  }
  for (const Json& evaluation : workshop.events(out, "eval")) outcome.test_count = evaluation["count"];
  const Json result = workshop.result(out);
  outcome.test_loss = result["test_loss"];
  outcome.test_accuracy = result["test_accuracy"];
  outcome.hash = result["parameters_hash"];
  return outcome;
}

void expect_success(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

}  // namespace

std::size_t steps_of(const Workshop& workshop, const std::string& out) {
  std::ifstream in(workshop.path(out) / "log.jsonl");
  std::size_t steps = 0;
  for (std::string line; std::getline(in, line);) steps += line.starts_with(R"({"event":"step")") ? 1 : 0;
  return steps;
}

void wait_for_step(const Workshop& workshop, const std::string& out, std::size_t step) {
  for (int i = 0; i < 6000 && steps_of(workshop, out) < step; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_GE(steps_of(workshop, out), step) << "the training has not reached the step";
}

Arguments mpirun(int ranks, const Arguments& program) {
  Arguments command = {CONVOY_MPIRUN, "-n", std::to_string(ranks)};
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

ProcessResult run_by_mpi(int ranks, const Arguments& program) {
  const TempDirectory session;
  return run_program(mpirun(ranks, program), {.environment = mpirun_environment(session)});
}

Environment rank_environment(int rank, int world_size, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world_size)},
          {"MASTER_ADDR", "127.0.0.1"},
          {"MASTER_PORT", std::to_string(port)}};
}

std::vector<ProcessResult> run_by_hand(int ranks, const Arguments& program) {
  const int port = free_port();
  std::vector<std::unique_ptr<Process>> processes;
  for (int rank = 0; rank < ranks; ++rank)
    processes.push_back(std::make_unique<Process>(
        program, ProcessOptions{.environment = rank_environment(rank, ranks, port)}));
  std::vector<ProcessResult> results;
  for (const auto& process : processes) results.push_back(process->wait());
  return results;
}

Outcome train_on(const Workshop& workshop, const std::string& out, int ranks, const std::string& comm,
                 const Arguments& flags) {
  Arguments arguments = workshop.train_arguments(out, flags);
  if (ranks == 1) {
    expect_success(run_program(arguments));
    return outcome_of(workshop, out);
  }
  arguments.insert(arguments.end(), {"--comm", comm, "--comm-timeout", "60"});
  if (comm == "thread") {
    arguments.insert(arguments.end(), {"--devices", std::to_string(ranks)});
    expect_success(run_program(arguments));
  } else if (comm == "tcp") {
    for (const ProcessResult& result : run_by_hand(ranks, arguments)) expect_success(result);
  } else {
    expect_success(run_by_mpi(ranks, arguments));
  }
  return outcome_of(workshop, out);
}

}  // namespace convoy::testing
