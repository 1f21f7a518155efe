// Tests of convoy-launch with real programs: output, restarts, continuation without failed ranks, signals,
// several hosts, and Slurm.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <random>
#include <set>
#include <sstream>
#include <thread>

#include "tests/apps/launched_training.h"
#include "tests/testing/support/two_hosts.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

TEST_F(ConvoyLaunch, MergesTheOutputOfAllRanks) {
  const ProcessResult result = run_program(
      launch({"--ranks", "3"}, shell("echo rank $RANK of $WORLD_SIZE; echo $LOCAL_RANK >&2; printf end")));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  for (const char* rank : {"0", "1", "2"}) {
    const std::string name = rank;
    EXPECT_THAT(result.out, HasSubstr("[" + name + "] rank " + name + " of 3\n"));
    EXPECT_THAT(result.out, HasSubstr("[" + name + "] end\n"));
    EXPECT_THAT(result.err, HasSubstr("[" + name + "] " + name + "\n"));
  }
  EXPECT_EQ(run_program(launch({"--no-prefix"}, shell("echo one"))).out, "one\n");
}

TEST_F(ConvoyLaunch, ReturnsTheCodeOfTheFirstFailure) {
  const ProcessResult result =
      run_program(launch({"--ranks", "3", "--grace", "0.5"}, shell("[ $RANK != 1 ] || exit 9; sleep 100")));
  EXPECT_EQ(result.exit_code, 9);
  EXPECT_THAT(result.err, HasSubstr("convoy-launch: rank 1 on localhost has exited with code 9"));
  EXPECT_EQ(run_program(launch({"--ranks", "2"}, {"/no/such/program"})).exit_code, 127);
}

TEST_F(ConvoyLaunch, RefusesInvalidFlags) {
  const auto refusal = [](const Arguments& flags, const Arguments& command) {
    const ProcessResult result = run_program(launch(flags, command));
    EXPECT_EQ(result.exit_code, 2);
    return result.err;
  };
  EXPECT_THAT(refusal({"--ranks", "2"}, {}), HasSubstr("no program to start"));
  EXPECT_THAT(refusal({}, {"no-such-program"}), HasSubstr("program not found"));
  EXPECT_THAT(refusal({"--min-ranks", "1"}, {"sh"}), HasSubstr("needs --max-restarts"));
  EXPECT_THAT(refusal({"--min-ranks", "3", "--max-restarts", "1", "--ranks", "2"}, {"sh"}),
              HasSubstr("more than the 2 ranks"));
  EXPECT_THAT(refusal({"--rank", "2"}, {"sh"}), HasSubstr("did you mean"));
  EXPECT_THAT(refusal({"--spares", "127.0.0.2"}, {"sh"}), HasSubstr("needs --max-restarts"));
  EXPECT_THAT(refusal({"--host-cooldown", "5", "--max-restarts", "1"}, {"sh"}),
              HasSubstr("--host-cooldown 5: needs --spares or --min-ranks"));
  EXPECT_THAT(refusal({"--host-cooldown", "0", "--max-restarts", "1", "--min-ranks", "1"}, {"sh"}),
              HasSubstr("--host-cooldown"));
  EXPECT_THAT(refusal({"--spares", "node2", "--max-restarts", "1"}, {"sh"}), HasSubstr("loopback address"));
}

TEST_F(ConvoyLaunch, RestartsWithABackoffAsOftenAsAllowed) {
  const auto begin = std::chrono::steady_clock::now();
  const ProcessResult result = run_program(
      launch({"--max-restarts", "2", "--backoff", "0.2"}, shell("echo try $CONVOY_RESTARTS; kill -9 $$")));
  EXPECT_EQ(result.exit_code, 137);
  EXPECT_THAT(result.out, AllOf(HasSubstr("try 0"), HasSubstr("try 1"), HasSubstr("try 2")));
  EXPECT_THAT(result.err, AllOf(HasSubstr("restart 1 of 2 in 0.2 s"), HasSubstr("restart 2 of 2 in 0.4 s")));
  EXPECT_GT(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(600));
}

TEST_F(ConvoyLaunch, ResumesFromTheNewestCheckpointWithTheSameResult) {
  ASSERT_EQ(run_program(training("whole", {"--ranks", "3"})).exit_code, 0);
  Process job(training("killed", {"--ranks", "3", "--max-restarts", "1", "--backoff", "0.1"}));
  wait_for_step(workshop, "killed", 150);
  kill_rank(1, "killed");
  FaultRecord record("one of 3 ranks is killed under `convoy-launch --max-restarts 1 --backoff 0.1`");
  while (job.running() && workshop.events("killed", "start").size() < 2)
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  record.stop();
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 1 on localhost was killed by SIGKILL; restart 1 of 1 in 0.1 s"));
  EXPECT_THAT(result.out, HasSubstr("[0] resuming from "));
  EXPECT_EQ(hash_of("killed"), hash_of("whole"));
  if (!HasFailure())
    record.print("all ranks resume from the newest checkpoint, and get the same bytes",
                 "time: the steps since that checkpoint are repeated");
}

TEST_F(ConvoyLaunch, CountsRestartsAnewAfterANewerCheckpoint) {
  const Arguments flags = {"--ranks", "2", "--max-restarts", "1", "--backoff", "0.1"};
  Process job(training("saving", flags, {"--epochs", "80", "--eval-every", "0", "--save-every", "50"}));
  for (const std::size_t step : {120, 270, 420}) {
    wait_for_step(workshop, "saving", step);
    kill_rank(1, "saving");
    while (job.running() && !find_processes("RANK=1", workshop.path("saving")).empty())
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("restart 1 of 1"));
  EXPECT_EQ(workshop.events("saving", "start").size(), 4u);

  Process other(training("other", flags, {"--epochs", "60", "--eval-every", "0", "--save-every", "1000000"}));
  for (int i = 0; i < 2; ++i) {
    wait_for_step(workshop, "other", 100);
    kill_rank(1, "other");
    while (other.running() && steps_of(workshop, "other") >= 100)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  EXPECT_EQ(other.wait().exit_code, 137) << "without a newer checkpoint, failures add up";
}

TEST_F(ConvoyLaunch, EndsAfterThreeFailuresInOneStep) {
  Arguments command = workshop.train_arguments("run", {"--model", "faulty", "--save-every", "1000000"});
  command.front() = program("convoy_faulty_training");
  const ProcessResult result =
      run_program(launch({"--ranks", "2", "--max-restarts", "9", "--backoff", "0"}, command),
                  {.environment = {{"CONVOY_TEST_FAULT", "abort in forward"}}});
  EXPECT_EQ(result.exit_code, 134) << result.err;
  EXPECT_THAT(result.err, AllOf(HasSubstr("restart 2 of 9"), Not(HasSubstr("restart 3 of 9"))));
  EXPECT_THAT(result.err,
              HasSubstr("was killed by SIGABRT; the job ends after 3 failures in a row in step 5"));
}

TEST_F(ConvoyLaunch, DoesNotRepeatAnErrorOfTheInput) {
  const ProcessResult result =
      run_program(training("run", {"--ranks", "2", "--max-restarts", "5"}, {"--batch-size", "0"}));
  EXPECT_EQ(result.exit_code, 2);
  EXPECT_THAT(result.err, AllOf(HasSubstr("--batch-size"), Not(HasSubstr("restart"))));
}

TEST_F(ConvoyLaunch, StopSignalsSaveAndEndTheJob) {
  for (const int signal : {SIGTERM, SIGUSR1, SIGHUP}) {
    const std::string out = "stopped" + std::to_string(signal);
    Process job(training(out, {"--ranks", "2", "--max-restarts", "3"}));
    wait_for_step(workshop, out, 20);
    job.send(signal);
    const ProcessResult result = job.wait();
    EXPECT_EQ(result.exit_code, 128 + signal) << result.err;
    EXPECT_THAT(result.out, HasSubstr("checkpoint saved, continue with --resume auto"));
    EXPECT_FALSE(checkpoints_of(workshop.path(out)).empty());
  }
}

TEST_F(ConvoyLaunch, MakesASecretForEachJob) {
  const auto secrets_of_a_job = [&] {
    const ProcessResult result = run_program(launch({"--ranks", "2"}, shell("echo secret=$CONVOY_SECRET")));
    std::set<std::string> secrets;
    std::istringstream lines(result.out);
    for (std::string line; std::getline(lines, line);)
      if (line.find("secret=") != std::string::npos) secrets.insert(line.substr(line.find("secret=") + 7));
    return secrets;
  };
  const std::set<std::string> first = secrets_of_a_job(), second = secrets_of_a_job();
  ASSERT_EQ(first.size(), 1u) << "the ranks have the same one";
  EXPECT_EQ(first.begin()->size(), 32u);
  EXPECT_NE(first, second);
  setenv("CONVOY_SECRET", "the one of the user", 1);
  EXPECT_EQ(secrets_of_a_job(), std::set<std::string>{"the one of the user"});
  setenv("CONVOY_SECRET", "", 1);  // is none
  EXPECT_EQ(secrets_of_a_job().begin()->size(), 32u);
  unsetenv("CONVOY_SECRET");
}

TEST_F(ConvoyLaunch, LeavesNoRankBehindIfItIsKilled) {
  Process job(training("run", {"--ranks", "2"}, {"--epochs", "100000", "--eval-every", "0"}));
  wait_for_step(workshop, "run", 5);
  job.send(SIGKILL);
  job.wait();
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!find_processes("RANK=", workshop.path("run")).empty() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_TRUE(find_processes("RANK=", workshop.path("run")).empty());
  EXPECT_FALSE(checkpoints_of(workshop.path("run")).empty()) << "the ranks save when the launcher dies";
}

/// Returns the agents of the launchers that this process has started.
std::vector<pid_t> agents_of(const Process& launcher) {
  std::istringstream children(
      read_text(fmt::format("/proc/{}/task/{}/children", launcher.id(), launcher.id())));
  return {std::istream_iterator<pid_t>(children), {}};
}

TEST_F(ConvoyLaunch, TakesAnAgentThatDoesNotAnswerForLost) {
  Process job(
      training("run", {"--ranks", "2", "--max-restarts", "1", "--host-timeout", "3", "--backoff", "0.1"}));
  wait_for_step(workshop, "run", 120);
  const std::vector<pid_t> agents = agents_of(job);
  ASSERT_EQ(agents.size(), 1u);
  kill(agents.front(), SIGSTOP);
  kill_rank(1, "run");
  const ProcessResult result = job.wait(std::chrono::seconds(60));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("convoy-launch: localhost has not answered for 3 s and is lost"));
  EXPECT_THAT(result.err, HasSubstr("is lost with the connection to its host; restart 1 of 1"));
}

TEST_F(ConvoyLaunch, NamesAnAgentThatWasKilledAsLost) {
  Process job(training("run", {"--ranks", "2"}));
  wait_for_step(workshop, "run", 20);
  kill(agents_of(job).at(0), SIGKILL);
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 4) << result.err;
  EXPECT_THAT(result.err, HasSubstr("rank 0 on localhost is lost with the connection to its host"));
  EXPECT_THAT(result.err, Not(HasSubstr("cannot be reached")));
}

/// Neither a launcher that does not read nor its terminal keeps a rank from printing.
TEST_F(ConvoyLaunch, ThatIsStoppedDoesNotStopTheRanks) {
  const fs::path done = workshop.path("done");
  Process job(launch({"--ranks", "1"}, shell("sleep 1; yes 0123456789 | head -n 3000000; touch " +
                                             done.string() + "; sleep 3")));
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  job.send(SIGSTOP);
  for (int i = 0; i < 600 && !fs::exists(done); ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  EXPECT_TRUE(fs::exists(done)) << "a rank waits for the launcher";
  job.send(SIGCONT);
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr(" lines dropped, because the output was not read"));
}

TEST_F(ConvoyLaunch, KillsARankThatIsStoppedForGoodOnceAnotherHasEnded) {
  const ProcessResult result =
      run_program(launch({"--ranks", "2", "--grace", "1"}, shell("test $RANK = 0 || kill -STOP $$")));
  EXPECT_EQ(result.exit_code, 128 + SIGKILL) << result.err;
  EXPECT_THAT(result.err,
              AllOf(HasSubstr("[1] a signal has stopped this process for 1 s while the ranks end"),
                    HasSubstr("rank 1 on ")));
}

TEST_F(ConvoyLaunch, EndsBySignalAlthoughAllRanksAreStopped) {
  const fs::path ready = workshop.path("ready");
  Process job(
      launch({"--ranks", "2", "--grace", "1"}, shell("touch " + ready.string() + "$RANK; kill -STOP $$")));
  while (!fs::exists(ready.string() + "0") || !fs::exists(ready.string() + "1"))
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  job.send(SIGTERM);
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 128 + SIGTERM) << result.err;
}

TEST_F(ConvoyLaunch, LetsARankThatWasStoppedEndAfterTheOthers) {
  Process job(
      launch({"--ranks", "2", "--grace", "2"},
             shell("test $RANK = 0 || { (sleep 1; kill -CONT $$) & kill -STOP $$; sleep 2; echo end; }")));
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("[1] end\n"));
}

TEST_F(ConvoyLaunch, PassesOnLongVariablesAndLines) {
  const ProcessResult result = run_program(
      launch({"--ranks", "2", "--start-timeout", "20"},
             shell("echo ${#CONVOY_BIG} bytes; head -c 200000 /dev/zero | tr '\\0' x; echo; echo end")),
      {.environment = {{"CONVOY_BIG", std::string(90000, 'x')}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out,
              AllOf(HasSubstr("[1] 90000 bytes\n"), HasSubstr("[1] end\n"), Not(HasSubstr("kind"))));
  EXPECT_GE(std::count(result.out.begin(), result.out.end(), 'x'), 400000);
  EXPECT_THAT(result.err, ::testing::IsEmpty());
}

TEST_F(ConvoyLaunch, RestartsAfterAStopSignalOfOneRank) {
  Process job(training("run", {"--ranks", "2", "--max-restarts", "1", "--backoff", "0.1"}));
  wait_for_step(workshop, "run", 20);
  const auto found = find_processes("RANK=1", workshop.path("run"));
  ASSERT_EQ(found.size(), 1u);
  kill(found.front(), SIGTERM);
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err, HasSubstr("has exited with code 143; restart 1 of 1"));
}

/// Jobs on several addresses of this machine, which are hosts that tests let disappear.
class ConvoyLaunchSpares : public ConvoyLaunch {
 protected:
  void SetUp() override {
    remote = workshop.directory().write("remote", "#!/bin/sh\necho $1 >>" + workshop.path("calls").string() +
                                                      "\n[ ! -e " + workshop.path("down-").string() +
                                                      "$1 ] || exit 255\nshift\nexec \"$@\"\n");
    chmod(remote.c_str(), 0755);
  }
  Process start(const Arguments& more) const {
    Arguments flags = {"--hosts",          "127.0.0.1:1,127.0.0.2:1",
                       "--remote-command", remote.string() + " {host}",
                       "--backoff",        "0.1"};
    flags.insert(flags.end(), more.begin(), more.end());
    return Process(
        training("run", flags,
                 {"--epochs", "100000", "--eval-every", "0", "--save-every", "100", "--log-every", "100"}));
  }
  /// Lets the second host disappear: it kills the agent, and the host answers no more.
  void lose_host(const Process& job) const {
    std::ofstream(workshop.path("down-127.0.0.2"));
    kill(agents_of(job).at(1), SIGKILL);
  }
  /// Waits for the start of a training in another group, and returns its event.
  Json wait_for_start(std::size_t count) const {
    for (int i = 0; i < 3000 && workshop.events("run", "start").size() < count; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const std::vector<Json> starts = workshop.events("run", "start");
    return starts.size() < count ? Json() : starts[count - 1];
  }
  static ProcessResult stop(Process& job) {
    job.send(SIGTERM);
    ProcessResult result = job.wait();
    EXPECT_EQ(result.exit_code, 143) << result.err;
    return result;
  }

  fs::path remote;
};

TEST_F(ConvoyLaunchSpares, ReplaceALostHostAtTheRestart) {
  Process job = start({"--spares", "127.0.0.3:1", "--max-restarts", "1"});
  wait_for_step(workshop, "run", 2);
  EXPECT_THAT(read_text(workshop.path("calls")), Not(HasSubstr("127.0.0.3")));
  lose_host(job);
  EXPECT_EQ(wait_for_start(2)["world_size"], 2);
  EXPECT_THAT(read_text(workshop.path("calls")), HasSubstr("127.0.0.3"));
  stop(job);
}

/// The others go on in memory at once, and save before they start again with the spare host.
TEST_F(ConvoyLaunchSpares, JoinAJobThatHasLostAHost) {
  Process job = start({"--spares", "127.0.0.3:1", "--max-restarts", "2", "--min-ranks", "1"});
  wait_for_step(workshop, "run", 2);
  lose_host(job);
  const Json alone = wait_for_start(2), grown = wait_for_start(3);
  EXPECT_EQ(alone["world_size"], 1);
  EXPECT_EQ(grown["world_size"], 2);
  EXPECT_GT(grown["step"], alone["step"]) << "the ranks save before they stop";
  EXPECT_THAT(stop(job).out, HasSubstr("[0] continuing after step ")) << "restarted from a checkpoint";
}

TEST_F(ConvoyLaunchSpares, AreHostsThatComeBack) {
  Process job = start({"--max-restarts", "1", "--min-ranks", "1", "--host-cooldown", "1"});
  wait_for_step(workshop, "run", 2);
  lose_host(job);
  EXPECT_EQ(wait_for_start(2)["world_size"], 1);
  std::this_thread::sleep_for(std::chrono::seconds(2));  // it is asked once, in vain
  EXPECT_EQ(workshop.events("run", "start").size(), 2u);
  const std::int64_t step = workshop.events("run", "step").back()["step"];
  fs::remove(workshop.path("down-127.0.0.2"));
  const Json grown = wait_for_start(3);
  EXPECT_EQ(grown["world_size"], 2) << read_text(workshop.path("run/log.jsonl")) << stop(job).err;
  EXPECT_GE(grown["step"], step) << "the ranks save before they stop";
  std::istringstream calls(read_text(workshop.path("calls")));
  const auto asked = std::count(std::istream_iterator<std::string>(calls), {}, "127.0.0.2");
  EXPECT_GE(asked, 4) << "at the start, after 1 s and 2 s more, and for the restart";
  EXPECT_LT(asked, 8) << "the cool-down period doubles";
  stop(job);
}

/// A real two-host job: agents are started in two network namespaces.
class ConvoyLaunchHosts : public ConvoyLaunch {
 protected:
  void SetUp() override {
    if (!TwoHosts::missing().empty()) GTEST_SKIP() << TwoHosts::missing();
    remote = workshop.directory().write("remote", "#!/bin/sh\ncase $1 in\n" + hosts.address(0) + ") name=" +
                                                      hosts.name(0) + " ;;\n*) name=" + hosts.name(1) +
                                                      " ;;\nesac\nshift\nexec ip netns exec $name \"$@\"\n");
    chmod(remote.c_str(), 0755);
  }
  Arguments flags(const Arguments& more) const {
    Arguments all = {"--hosts", hosts.address(0) + ":2," + hosts.address(1) + ":2", "--remote-command",
                     remote.string() + " {host}"};
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  TwoHosts hosts;
  fs::path remote;
};

TEST_F(ConvoyLaunchHosts, TrainTogether) {
  const ProcessResult result = run_program(training("run", flags({}), {"--max-steps", "10"}));
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("4 on 2 hosts"));
  EXPECT_EQ(workshop.result("run")["world_size"], 4);
}

TEST_F(ConvoyLaunchHosts, ContinueWithoutALostHost) {
  Process job(training("run", flags({"--max-restarts", "2", "--min-ranks", "2"})));
  wait_for_step(workshop, "run", 100);
  // The agent of the second host dies, and with it its ranks.
  for (const pid_t rank : find_processes("RANK=2", workshop.path("run"))) {
    std::ifstream status("/proc/" + std::to_string(rank) + "/stat");
    std::string id, name, state;
    pid_t parent = 0;
    status >> id >> name >> state >> parent;
    kill(parent, SIGKILL);
  }
  const ProcessResult result = job.wait();
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_THAT(result.err,
              HasSubstr("rank 2 on " + hosts.address(1) + " is lost with the connection to its host"));
  EXPECT_EQ(workshop.result("run")["world_size"], 2);
}

/// Every host holds all shards of the optimizer's state, so no rank keeps a copy of a peer's. After the loss of a rank,
/// the hosts have different numbers of ranks, which become one group.
TEST_F(ConvoyLaunchHosts, ContinueWithTheShardsOfTheRemainingRanks) {
  const Arguments steps = {"--epochs", "12",    "--eval-every", "0",    "--save-every", "1000000",
                           "--zero",   "1",     "--zero-group", "host", "--precision",  "fp64",
                           "--lr",     "0.001", "--optimizer",  "adamw"};
  ASSERT_EQ(run_program(training("whole", flags({}), steps)).exit_code, 0);
  const double expected = workshop.result("whole")["test_loss"];
  for (const bool loses_host : {true, false}) {
    const std::string out = loses_host ? "host" : "rank";
    Process job(training(out, flags({"--max-restarts", "2", "--min-ranks", "2"}), steps));
    wait_for_step(workshop, out, 25);
    for (const char* const rank : {"RANK=2", "RANK=3"})
      for (const pid_t found : find_processes(rank, workshop.path(out)))
        if (loses_host || rank == std::string("RANK=3")) kill(found, SIGKILL);
    const ProcessResult result = job.wait();
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, HasSubstr("continuing after step "));
    const Json last = workshop.result(out);
    EXPECT_EQ(last["world_size"], loses_host ? 2 : 3);
    EXPECT_NEAR(last["test_loss"].get<double>(), expected, 1e-6 * expected);
    EXPECT_EQ(result.out.find("all ranks are one group") != std::string::npos ||
                  result.err.find("all ranks are one group") != std::string::npos,
              !loses_host);
  }
}

/// A host without power sends nothing, and closes no connection.
TEST_F(ConvoyLaunchHosts, ContinueWithoutAFrozenHost) {
  Process job(training(
      "run", flags({"--max-restarts", "2", "--min-ranks", "2", "--host-timeout", "4", "--grace", "10"})));
  wait_for_step(workshop, "run", 100);
  hosts.disconnect();
  std::vector<pid_t> frozen;
  std::istringstream ids(run_program({"/usr/sbin/ip", "netns", "pids", hosts.name(1)}).out);
  for (pid_t id = 0; ids >> id;) frozen.push_back(id);
  ASSERT_GE(frozen.size(), 3u);
  for (const pid_t id : frozen) kill(id, SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  while (job.running() && workshop.events("run", "start").size() < 2)
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - begin;
  const ProcessResult result = job.wait();
  for (const pid_t id : frozen) kill(id, SIGKILL);
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_LT(took.count(), 4 + 5) << "until the others go on";
  EXPECT_THAT(result.err,
              HasSubstr("convoy-launch: " + hosts.address(1) + " has not answered for 4 s and is lost"));
  EXPECT_EQ(workshop.result("run")["world_size"], 2);
}

TEST_F(ConvoyLaunchHosts, NameAHostThatCannotBeReached) {
  std::ofstream(remote) << "#!/bin/sh\necho no route to $1 >&2\nexit 255\n";
  const ProcessResult result = run_program(training("run", flags({})));
  EXPECT_EQ(result.exit_code, 4);
  EXPECT_THAT(result.err, AllOf(HasSubstr("] no route to 10.213.77."), HasSubstr("cannot be reached")));
}

TEST_F(ConvoyLaunch, StartsAgentsBySrunWithinASlurmJob) {
  const fs::path bin = workshop.path("bin");
  fs::create_directories(bin);
  const auto write_program = [&](const char* name, const std::string& text) {
    std::ofstream(bin / name) << "#!/bin/sh\n" << text;
    chmod((bin / name).c_str(), 0755);
  };
  write_program("srun", "echo \"$@\" >>" + (workshop.path("srun-calls")).string() +
                            "\nwhile [ \"${1#--}\" != \"$1\" ]; do shift; done\nexec \"$@\"\n");
  write_program("scontrol", "printf '127.0.0.1\\n127.0.0.2\\n'\n");
  const std::string path = bin.string() + ":" + std::getenv("PATH");
  const ProcessResult result =
      run_program(training("run", {"--ranks", "4"}, {"--max-steps", "5"}),
                  {.environment = {{"SLURM_JOB_ID", "7"}, {"SLURM_JOB_NODELIST", "n[1-2]"}, {"PATH", path}}});
  EXPECT_EQ(result.exit_code, 0) << result.err;
  EXPECT_EQ(workshop.result("run")["world_size"], 4);
  EXPECT_THAT(read_text(workshop.path("srun-calls")),
              HasSubstr("--nodes=1 --ntasks=1 --overlap --nodelist=127.0.0.2 "));
}

}  // namespace
}  // namespace convoy::testing
