#include "tests/apps/faults/rank_job.h"

#include <signal.h>

#include <chrono>
#include <thread>

#include <nlohmann/json.hpp>

#include "tests/testing/support/free_port.h"

namespace convoy::testing {

void RankJob::start(int ranks, const std::string& comm, const Arguments& flags) {
  Arguments arguments = workshop.train_arguments("run", flags);
  arguments.insert(arguments.end(), {"--comm", comm});
  if (comm == "mpi") {
    processes.push_back(std::make_unique<Process>(
        mpirun(ranks, arguments), ProcessOptions{.environment = mpirun_environment(session_)}));
  } else {
    const int port = free_port();
    for (int rank = 0; rank < ranks; ++rank) start_rank(rank, ranks, port, arguments);
  }
}

void RankJob::start_rank(int rank, int ranks, int port, const Arguments& command,
                         const ProcessOptions& options) {
  ProcessOptions all = options;
  all.environment.merge(rank_environment(rank, ranks, port));
  processes.push_back(std::make_unique<Process>(command, all));
}

void RankJob::wait_until_step(std::size_t step) {
  wait_for_step(workshop, "run", step);
  traces.observe();
}

pid_t RankJob::id_of(int rank) const {
  if (processes.size() > 1) return processes[static_cast<std::size_t>(rank)]->id();
  for (const pid_t id : processes_with(workshop.path("run"))) {
    const std::string environment =
        '\0' + read_text(std::filesystem::path("/proc") / std::to_string(id) / "environ");
    if (environment.find('\0' + ("OMPI_COMM_WORLD_RANK=" + std::to_string(rank)) + '\0') != std::string::npos)
      return id;
  }
  ADD_FAILURE() << "found no process of rank " << rank;
  return 0;
}

std::string RankJob::errors() const {
  std::string all;
  for (const auto& process : processes)
    all += read_text(std::filesystem::path("/proc") / std::to_string(process->id()) / "fd/2");
  return all;
}

void RankJob::wait_for_error(const std::string& text) const {
  for (int i = 0; i < 3000 && errors().find(text) == std::string::npos; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  EXPECT_THAT(errors(), ::testing::HasSubstr(text));
}

std::vector<ProcessResult> RankJob::wait(int but) {
  std::vector<ProcessResult> results;
  for (std::size_t i = 0; i < processes.size(); ++i)
    results.push_back(processes.size() > 1 && static_cast<int>(i) == but ? ProcessResult{}
                                                                         : processes[i]->wait());
  return results;
}

std::string RankJob::hash_of(const std::string& out) const { return workshop.result(out)["parameters_hash"]; }

void RankJob::TearDown() {
  for (const auto& process : processes)
    if (process->running()) process->send(SIGKILL);
  for (const auto& process : processes) process->wait();
  EXPECT_THAT(traces.remaining(), ::testing::IsEmpty());
}

}  // namespace convoy::testing
