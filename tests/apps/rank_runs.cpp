#include "tests/apps/rank_runs.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>

#include "apps/setup.h"
#include "apps/trainer.h"
#include "comm/thread_communicator.h"
#include "engine/io/state_dict.h"
#include "tests/support/free_port.h"

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

/// What convoy-train does, for one of several threads.
Outcome train_in_this_thread(const Arguments& arguments, Communicator& comm) {
  std::vector<const char*> argv;
  for (const std::string& argument : arguments) argv.push_back(argument.c_str());
  TrainOptions options;
  CommandLine line = train_command_line(options);
  line.parse(static_cast<int>(argv.size()), argv.data());
  resolve_recipe(options);
  check_consistency(options, line);
  Device device = open_device(options.compute, parse_precision(options.precision));
  const Setup setup = set_up(options, line, device, locate_data(options.data));
  CheckpointFolder checkpoints(std::filesystem::path(*options.out) / "checkpoints");
  const std::unique_ptr<Communicator> statistics = options.sync_bn ? comm.split(0) : nullptr;
  Trainer trainer(options, {.model = setup.model,
                            .device = setup.device,
                            .data = setup.data,
                            .transform = setup.transform,
                            .checkpoints = checkpoints,
                            .gradients = &comm,
                            .control = &comm,
                            .statistics = statistics.get()});
  trainer.share_state();
  Outcome outcome;
  TrainerCallbacks callbacks;
  callbacks.on_step = [&](const StepReport& report) {
    outcome.losses.push_back(report.measured.value().loss);
    outcome.samples = report.samples;
  };
  callbacks.on_evaluation = [&](std::int64_t, const Evaluation& evaluation, bool) {
    outcome.test_count = evaluation.count;
    outcome.test_loss = evaluation.loss;
    outcome.test_accuracy = evaluation.accuracy;
  };
  trainer.run(callbacks);
  if (statistics) statistics->finish();
  comm.finish();
  outcome.hash = parameters_hash(setup.model.root());
  return outcome;
}

Outcome train_in_threads(int ranks, const Arguments& arguments) {
  std::vector<std::unique_ptr<Communicator>> comms =
      make_thread_communicators(ranks, {.timeout_seconds = 60});
  std::vector<Outcome> outcomes(comms.size());
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < comms.size(); ++rank)
    threads.emplace_back([&, rank] {
      const std::unique_ptr<Communicator> comm = std::move(comms[rank]);
      try {
        outcomes[rank] = train_in_this_thread(arguments, *comm);
      } catch (const std::exception& error) {
        ADD_FAILURE() << "rank " << rank << ": " << error.what();
        comm->abort(error.what());
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (const Outcome& outcome : outcomes) {
    EXPECT_EQ(outcome.losses, outcomes.front().losses) << "a rank reports other losses";
    EXPECT_EQ(outcome.hash, outcomes.front().hash) << "a rank has other parameters";
    EXPECT_EQ(outcome.test_loss, outcomes.front().test_loss);
    EXPECT_EQ(outcome.test_count, outcomes.front().test_count);
  }
  return outcomes.front();
}

void expect_success(const ProcessResult& result) {
  EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
}

}  // namespace

Arguments mpirun(int ranks, const Arguments& program) {
  Arguments command = {CONVOY_MPIRUN, "-n", std::to_string(ranks)};
  command.insert(command.end(), program.begin(), program.end());
  return command;
}

ProcessResult run_by_mpi(int ranks, const Arguments& program) {
  const TempFolder session;
  return run_program(mpirun(ranks, program), {.environment = mpirun_environment(session)});
}

Environment rank_environment(int rank, int world, int port) {
  return {{"RANK", std::to_string(rank)},
          {"WORLD_SIZE", std::to_string(world)},
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
  if (comm == "threads") return train_in_threads(ranks, arguments);
  arguments.insert(arguments.end(), {"--comm", comm, "--comm-timeout", "60"});
  if (comm == "gloo") {
    for (const ProcessResult& result : run_by_hand(ranks, arguments)) expect_success(result);
  } else {
    expect_success(run_by_mpi(ranks, arguments));
  }
  return outcome_of(workshop, out);
}

}  // namespace convoy::testing
