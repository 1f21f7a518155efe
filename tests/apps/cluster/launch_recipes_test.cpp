// Tests that run every command of docs/launching.md, with a fake Slurm and without Kubernetes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <sstream>
#include <thread>

#include "tests/apps/cluster/yaml_text.h"
#include "tests/apps/find_python.h"
#include "tests/apps/rank_runs.h"
#include "tests/apps/tutorials/recipes.h"
#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/free_port.h"
#include "tests/testing/support/two_hosts.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::UnorderedElementsAreArray;

const fs::path kSource = testing::source_path();

Recipes recipes() { return recipes_of(kSource / "docs/launching.md"); }

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size()))
    text.replace(at, what.size(), by);
  return text;
}

int count_of(const std::string& text, const std::string& part) {
  int count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

class LaunchRecipes : public ::testing::Test {
 protected:
  /// Returns an environment with the programs on the PATH and a free port.
  Environment environment() const {
    Environment all = mpirun_environment(session);
    all["PATH"] = fs::path(program("convoy-doctor")).parent_path().string() + ":" +
                  fs::path(CONVOY_MPIRUN).parent_path().string() + ":" + std::getenv("PATH");
    all["MASTER_PORT"] = std::to_string(free_port());
    return all;
  }
  /// Returns an environment in which a fake Slurm is on the PATH. The recipes derive the port from the job.
  Environment slurm_environment() const {
    Environment all = environment();
    all["PATH"] = (kSource / "tests/apps/cluster/fake_slurm").string() + ":" + all["PATH"];
    all["FAKE_SLURM_STATE"] = directory.path();
    all["FAKE_SLURM_JOB"] = std::to_string(getpid());
    all.erase("MASTER_PORT");
    return all;
  }
  static Arguments shell(const std::string& command) { return {"/bin/sh", "-c", command}; }
  ProcessResult run(const std::string& command, const Environment& more = {}) const {
    Environment all = more;
    all.merge(environment());
    return run_program(shell(command), {.environment = all, .directory = kSource});
  }

  /// Expects `gathered_by` ranks to have printed a complete all-gather of `ranks` ranks.
  static void expect_ranks(const ProcessResult& result, int ranks, int gathered_by) {
    EXPECT_EQ(result.exit_code, 0) << result.out << result.err;
    std::string all = "[0";
    for (int rank = 1; rank < ranks; ++rank) all.append(" ").append(std::to_string(rank));
    EXPECT_EQ(count_of(result.out, "all-gather " + all + "]\n"), gathered_by) << result.out << result.err;
  }

  TempDirectory session, directory;
};

TEST_F(LaunchRecipes, AllHaveATest) {
  std::vector<std::string> headings;
  for (const auto& [heading, commands] : recipes()) headings.push_back(heading);
  EXPECT_THAT(headings,
              UnorderedElementsAreArray({"One machine, by mpirun", "Several hosts, by mpirun",
                                         "One machine or several, without MPI", "Restarts after failures",
                                         "Slurm", "Kubernetes", "A scheduler with variables of its own"}));
}

TEST_F(LaunchRecipes, OneMachineWithMpirun) {
  const std::vector<std::string> commands = recipes()["One machine, by mpirun"];
  ASSERT_THAT(commands, ElementsAre("mpirun -n 4 convoy-doctor", HasSubstr("--host localhost:4"),
                                    HasSubstr("--bind-to none"), HasSubstr("--bind-to core")));
  expect_ranks(run(commands[0]), 4, 4);
  // Without oversubscription, the slots of the command must suffice.
  expect_ranks(run(commands[1], {{"OMPI_MCA_rmaps_base_oversubscribe", "0"}}), 4, 4);
  const ProcessResult unbound = run(commands[2]);
  expect_ranks(unbound, 2, 2);
  if (sysconf(_SC_NPROCESSORS_ONLN) < 2) GTEST_SKIP() << "needs two cores";
  const ProcessResult bound = run(commands[3]);
  expect_ranks(bound, 2, 2);
  const auto cores_of = [](const std::string& text, int rank) {
    const std::size_t line = text.find("\n  rank " + std::to_string(rank) + " ");
    const std::size_t begin = text.find("cores ", line) + 6;
    return text.substr(begin, text.find_first_of(",\n", begin) - begin);
  };
  EXPECT_EQ(cores_of(unbound.out, 0), cores_of(unbound.out, 1));
  EXPECT_NE(cores_of(bound.out, 0), cores_of(bound.out, 1)) << bound.out;
  EXPECT_EQ(cores_of(bound.out, 0).find('-'), std::string::npos) << "expected one core";
}

/// Uses two network namespaces as node1 and node2.
class TwoHostRecipes : public LaunchRecipes {
 protected:
  void SetUp() override {
    if (!TwoHosts::missing().empty()) GTEST_SKIP() << TwoHosts::missing();
  }
  std::string placed(const std::string& text) const {
    return replaced(replaced(replaced(text, "node1", hosts.address(0)), "node2", hosts.address(1)),
                    "10.0.0.0/24", TwoHosts::kNetwork);
  }
  Arguments on_host(int host, const std::string& command) const {
    Arguments arguments = {"/usr/sbin/ip", "netns", "exec", hosts.name(host)};
    for (const std::string& argument : shell(command)) arguments.push_back(argument);
    return arguments;
  }

  TwoHosts hosts;
};

TEST_F(TwoHostRecipes, WithMpirun) {
  const std::vector<std::string> commands = recipes()["Several hosts, by mpirun"];
  ASSERT_THAT(commands,
              ElementsAre(HasSubstr("--hostfile docs/launch/hostfile"), HasSubstr("--host node1:2,node2:2")));
  // A replacement for ssh, called with a host and a command.
  const fs::path agent = directory.write(
      "agent", "#!/bin/sh\nhost=$1\nshift\ncase $host in\n" + hosts.address(0) + ") name=" + hosts.name(0) +
                   " ;;\n*) name=" + hosts.name(1) + " ;;\nesac\nexec ip netns exec $name sh -c \"$*\"\n");
  ::chmod(agent.c_str(), 0755);
  const fs::path list = directory.write("hostfile", placed(read_text(kSource / "docs/launch/hostfile")));
  Environment all = environment();
  all["OMPI_MCA_plm_rsh_agent"] = agent;
  all["OMPI_MCA_rmaps_base_oversubscribe"] = "0";
  all["PATH"] += ":/usr/sbin";
  for (const std::string& command : commands) {
    Environment of_command = all;
    if (command == commands[0])
      of_command.insert({{"OMPI_MCA_btl", "tcp,self"},
                         {"OMPI_MCA_btl_tcp_if_include", TwoHosts::kNetwork},
                         {"OMPI_MCA_oob_tcp_if_include", TwoHosts::kNetwork}});
    const ProcessResult result =
        run_program(on_host(0, placed(replaced(command, "docs/launch/hostfile", list))),
                    {.environment = of_command, .directory = kSource});
    expect_ranks(result, 4, 4);
    EXPECT_THAT(result.out, HasSubstr("4 ranks on 2 hosts"));
    EXPECT_THAT(result.out, HasSubstr("shm+mpi: all-gather"));
  }
}

TEST_F(TwoHostRecipes, WithoutMpi) {
  const std::vector<std::string> commands = recipes()["One machine or several, without MPI"];
  ASSERT_THAT(commands, ElementsAre("convoy-launch --ranks 4 convoy-doctor",
                                    "convoy-launch --hosts node1:2,node2:2 convoy-doctor"));
  expect_ranks(run(commands[0]), 4, 4);
  // Replaces ssh.
  const fs::path ssh = directory.write(
      "ssh", "#!/bin/sh\nshift 2\n[ $1 = " + hosts.address(0) + " ] && name=" + hosts.name(0) +
                 " || name=" + hosts.name(1) + "\nshift\nexec ip netns exec $name sh -c \"$*\"\n");
  ::chmod(ssh.c_str(), 0755);
  const std::string path = directory.path().string() + ":" + environment()["PATH"] + ":/usr/sbin";
  const ProcessResult result = run(placed(commands[1]), {{"PATH", path}});
  expect_ranks(result, 4, 4);
  EXPECT_THAT(result.out, HasSubstr("4 ranks on 2 hosts; RANK and WORLD_SIZE, tcp://10.213.77.1"));
  EXPECT_THAT(result.out, HasSubstr("shm+tcp: all-gather"));
}

TEST_F(LaunchRecipes, Restarts) {
  const std::vector<std::string> commands = recipes()["Restarts after failures"];
  ASSERT_THAT(commands, ElementsAre(HasSubstr("--max-restarts 3"), HasSubstr("--min-ranks 2")));
  for (const std::string& command : commands) {
    const TempDirectory out;
    const ProcessResult result = run(replaced(command, "runs/restarts", out.path() / "run"));
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("[0]   ranks      4 on 1 host"));
  }
}

TEST_F(LaunchRecipes, SlurmVariables) {
  const std::vector<std::string> commands = recipes()["Slurm"];
  ASSERT_THAT(commands, ElementsAre("srun -n 4 convoy-doctor", "sbatch --wait docs/launch/job.sbatch",
                                    "sbatch --wait docs/launch/requeue.sbatch"));
  Environment all = slurm_environment();
  all["CONVOY_OUT"] = directory.path() / "run";
  const auto run_here = [&](const std::string& command) {
    return run_program(shell(command), {.environment = all, .directory = kSource});
  };
  const ProcessResult step = run_here(commands[0]);
  expect_ranks(step, 4, 4);
  EXPECT_THAT(step.out, HasSubstr("4 ranks on 1 host; SLURM_*, tcp://localhost:"));
  const ProcessResult batch = run_here(commands[1]);
  expect_ranks(batch, 4, 4);
  EXPECT_TRUE(fs::exists(directory.path() / "run/checkpoints")) << batch.out << batch.err;
}

TEST_F(LaunchRecipes, SixtyFourRanks) {
  expect_ranks(run_program(shell("srun -n 64 convoy-doctor"), {.environment = slurm_environment()}), 64, 64);
  expect_ranks(run("mpirun -n 64 --bind-to none convoy-doctor"), 64, 64);
}

TEST_F(LaunchRecipes, SlurmRequeue) {
  Environment all = slurm_environment();
  all["MASTER_PORT"] = std::to_string(free_port());
  const Arguments batch = {kSource / "tests/apps/cluster/fake_slurm/sbatch", "--wait",
                           "docs/launch/requeue.sbatch"};
  const auto hash_of = [&](const char* out) {
    std::istringstream lines(read_text(directory.path() / out / "log.jsonl"));
    std::string line, last;
    while (std::getline(lines, line)) last = line;
    return Json::parse(last)["parameters_hash"];
  };
  all["CONVOY_OUT"] = directory.path() / "whole";
  all["EPOCHS"] = "4";
  ASSERT_EQ(run_program(batch, {.environment = all, .directory = kSource}).exit_code, 0);
  all["CONVOY_OUT"] = directory.path() / "again";
  Process job(batch, {.environment = all, .directory = kSource});
  const fs::path log = directory.path() / "again/log.jsonl";
  const auto has_steps = [&] {
    return fs::exists(log) && count_of(read_text(log), "\"event\":\"step\"") > 0;
  };
  for (int tries = 0; tries < 3000 && !has_steps(); ++tries)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  ASSERT_TRUE(has_steps());
  job.send(SIGUSR1);
  const ProcessResult stopped = job.wait();
  EXPECT_EQ(stopped.exit_code, 138) << stopped.err << stopped.out;
  EXPECT_THAT(stopped.out, HasSubstr("stopped by signal 10 after step ")) << stopped.err;
  EXPECT_EQ(read_text(directory.path() / "requeued"), all["FAKE_SLURM_JOB"] + "\n");
  const ProcessResult resumed = run_program(batch, {.environment = all, .directory = kSource});
  EXPECT_EQ(resumed.exit_code, 0) << resumed.err;
  EXPECT_THAT(resumed.out, HasSubstr("[0] resuming from ")) << resumed.err << stopped.err;
  EXPECT_EQ(hash_of("again"), hash_of("whole"));
}

TEST_F(LaunchRecipes, SchedulerSpecificVariables) {
  const std::vector<std::string> commands = recipes()["A scheduler with variables of its own"];
  ASSERT_THAT(commands, ElementsAre("docs/launch/mlp_node.sh convoy-doctor"));
  Environment all = environment();
  all["MLP_WORKER_0_PORT"] = all["MASTER_PORT"];
  all.erase("MASTER_PORT");
  all.insert({{"MLP_WORKER_NUM", "2"}, {"MLP_WORKER_GPU", "2"}, {"MLP_WORKER_0_HOST", "127.0.0.1"}});
  std::vector<std::unique_ptr<Process>> nodes;
  for (const char* node : {"0", "1"}) {
    all["MLP_ROLE_INDEX"] = node;
    nodes.push_back(std::make_unique<Process>(shell(commands[0]),
                                              ProcessOptions{.environment = all, .directory = kSource}));
  }
  for (const auto& node : nodes) expect_ranks(node->wait(), 4, 2);
}

/// Expects an object with only fields of `fields`, and with all fields of `needed`.
void expect_fields(const Json& object, const std::vector<std::string>& fields,
                   const std::vector<std::string>& needed) {
  ASSERT_TRUE(object.is_object()) << object.dump();
  for (const auto& [key, value] : object.items())
    EXPECT_NE(std::find(fields.begin(), fields.end(), key), fields.end())
        << "unknown field of kubeflow.org/v2beta1: " << key;
  for (const std::string& key : needed)
    EXPECT_TRUE(object.contains(key)) << key << " is missing in " << object.dump();
}

/// Expects PyYAML, if it is installed, to parse the same manifest: a value, or an array of one for each document.
void expect_same_by_pyyaml(const std::string& text, const Json& expected) {
  const std::string python = find_python("yaml");
  if (python.empty()) GTEST_SKIP() << no_python("yaml");
  const TempDirectory directory;
  const ProcessResult parsed = run_program(
      {python, "-c", "import json, sys, yaml; print(json.dumps(list(yaml.safe_load_all(open(sys.argv[1])))))",
       directory.write("text.yaml", text)});
  ASSERT_EQ(parsed.exit_code, 0) << parsed.err;
  const Json documents = Json::parse(parsed.out);
  EXPECT_EQ(documents.size() == 1 ? documents[0] : documents, expected);
}

TEST_F(LaunchRecipes, MpiJobManifest) {
  ASSERT_THAT(recipes()["Kubernetes"], ElementsAre("kubectl apply -f docs/launch/mpijob.yaml",
                                                   "kubectl apply -f docs/launch/indexedjob.yaml"));
  const fs::path file = kSource / "docs/launch/mpijob.yaml";
  const Json job = parse_yaml(read_text(file));
  expect_fields(job, {"apiVersion", "kind", "metadata", "spec"}, {"apiVersion", "kind", "metadata", "spec"});
  EXPECT_EQ(job["apiVersion"], "kubeflow.org/v2beta1");
  EXPECT_EQ(job["kind"], "MPIJob");
  const Json& spec = job["spec"];
  expect_fields(spec,
                {"slotsPerWorker", "runLauncherAsWorker", "runPolicy", "mpiReplicaSpecs", "sshAuthMountPath",
                 "launcherCreationPolicy", "mpiImplementation"},
                {"mpiReplicaSpecs"});
  EXPECT_EQ(spec["mpiImplementation"], "OpenMPI");
  expect_fields(spec["runPolicy"],
                {"cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit",
                 "schedulingPolicy", "suspend", "managedBy"},
                {});
  const Json& replicas = spec["mpiReplicaSpecs"];
  expect_fields(replicas, {"Launcher", "Worker"}, {"Launcher", "Worker"});
  for (const char* role : {"Launcher", "Worker"}) {
    expect_fields(replicas[role], {"replicas", "template", "restartPolicy"}, {"replicas", "template"});
    const Json& pod = replicas[role]["template"]["spec"];
    expect_fields(pod, {"containers", "volumes"}, {"containers"});
    ASSERT_EQ(pod["containers"].size(), 1u);
    expect_fields(pod["containers"][0],
                  {"name", "image", "command", "args", "env", "resources", "volumeMounts"},
                  {"name", "image"});
  }
  EXPECT_EQ(replicas["Launcher"]["replicas"], 1);
  const Json& worker = replicas["Worker"]["template"]["spec"];
  EXPECT_EQ(worker["containers"][0]["resources"]["limits"]["nvidia.com/gpu"], spec["slotsPerWorker"]);
  EXPECT_EQ(worker["containers"][0]["volumeMounts"][0]["name"], worker["volumes"][0]["name"]);
  EXPECT_EQ(worker["containers"][0]["volumeMounts"][0]["mountPath"], "/dev/shm");

  // Runs the launcher command like the MPI operator: with a host file and the variables of the container.
  const Json& launcher = replicas["Launcher"]["template"]["spec"]["containers"][0];
  const int ranks = spec["slotsPerWorker"].get<int>() * replicas["Worker"]["replicas"].get<int>();
  const Arguments command = launcher["command"].get<Arguments>();
  ASSERT_EQ(command[0], "mpirun");
  ASSERT_THAT(command, ::testing::Contains(std::to_string(ranks)));
  Environment all = environment();
  for (const Json& variable : launcher["env"]) all[variable["name"]] = variable["value"].get<std::string>();
  all["OMPI_MCA_orte_default_hostfile"] =
      directory.write("hostfile", "localhost slots=" + std::to_string(ranks) + "\n");
  all["OMPI_MCA_rmaps_base_oversubscribe"] = "0";
  Arguments with_path = {"/usr/bin/env"};
  with_path.insert(with_path.end(), command.begin(), command.end());
  expect_ranks(run_program(with_path, {.environment = all}), ranks, ranks);

  expect_same_by_pyyaml(read_text(file), job);
}

/// Runs the container of each pod, one after the other's start, with the variables that Kubernetes gives it.
TEST_F(LaunchRecipes, IndexedJobManifest) {
  const std::string text = read_text(kSource / "docs/launch/indexedjob.yaml");
  const std::size_t separator = text.find("\n---\n");
  ASSERT_NE(separator, std::string::npos);
  const Json service = parse_yaml(text.substr(0, separator));
  const Json job = parse_yaml(text.substr(separator + 5));
  expect_fields(service, {"apiVersion", "kind", "metadata", "spec"},
                {"apiVersion", "kind", "metadata", "spec"});
  EXPECT_EQ(service["apiVersion"], "v1");
  EXPECT_EQ(service["kind"], "Service");
  EXPECT_EQ(service["spec"], (Json{{"clusterIP", "None"},
                                   {"publishNotReadyAddresses", true},
                                   {"selector", {{"job-name", job["metadata"]["name"]}}}}));
  expect_fields(job, {"apiVersion", "kind", "metadata", "spec"}, {"apiVersion", "kind", "metadata", "spec"});
  EXPECT_EQ(job["apiVersion"], "batch/v1");
  EXPECT_EQ(job["kind"], "Job");
  const Json& spec = job["spec"];
  expect_fields(spec,
                {"activeDeadlineSeconds", "backoffLimit", "backoffLimitPerIndex", "completionMode",
                 "completions", "maxFailedIndexes", "parallelism", "podFailurePolicy", "suspend", "template",
                 "ttlSecondsAfterFinished"},
                {"completionMode", "completions", "parallelism", "template"});
  EXPECT_EQ(spec["completionMode"], "Indexed");
  EXPECT_EQ(spec["completions"], spec["parallelism"]);  // all ranks wait for each other
  const Json& pod = spec["template"]["spec"];
  expect_fields(pod, {"containers", "volumes", "subdomain", "restartPolicy"},
                {"containers", "subdomain", "restartPolicy"});
  EXPECT_EQ(pod["subdomain"], service["metadata"]["name"]);
  const Json& container = pod["containers"][0];
  expect_fields(container, {"name", "image", "command", "args", "env", "resources", "volumeMounts"},
                {"name", "image", "command", "env"});
  EXPECT_EQ(container["volumeMounts"][0]["name"], pod["volumes"][0]["name"]);
  Environment all = environment();
  const std::string port = all["MASTER_PORT"];
  for (const Json& variable : container["env"])
    all[variable["name"]] = variable.value("value", std::string(32, 'a'));
  const int pods = spec["completions"].get<int>(), ranks_per_pod = std::stoi(all["LOCAL_WORLD_SIZE"]);
  EXPECT_EQ(container["resources"]["limits"]["nvidia.com/gpu"], ranks_per_pod);
  EXPECT_EQ(std::stoi(all["WORLD_SIZE"]), pods * ranks_per_pod);
  EXPECT_EQ(all["MASTER_ADDR"],
            job["metadata"]["name"].get<std::string>() + "-0." + pod["subdomain"].get<std::string>());
  all["MASTER_ADDR"] = "127.0.0.1";
  all["MASTER_PORT"] = port;
  Arguments command = container["command"].get<Arguments>();
  ASSERT_EQ(command[0], "bash");
  command[0] = "/bin/bash";
  std::vector<std::unique_ptr<Process>> processes;
  for (int index = 0; index < pods; ++index) {
    all["JOB_COMPLETION_INDEX"] = std::to_string(index);
    processes.push_back(std::make_unique<Process>(command, ProcessOptions{.environment = all}));
  }
  for (const auto& process : processes) expect_ranks(process->wait(), pods * ranks_per_pod, ranks_per_pod);
  expect_same_by_pyyaml(text, Json::array({service, job}));
}

}  // namespace
}  // namespace convoy::testing
