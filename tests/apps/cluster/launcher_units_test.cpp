// Tests of convoy-launch's parts: hosts, commands, lines, and what follows a failure.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <csignal>

#include "convoy/apps/cluster/launcher/child_process.h"
#include "convoy/apps/cluster/launcher/launcher_messages.h"
#include "convoy/apps/cluster/launcher/options.h"
#include "convoy/apps/cluster/launcher/supervisor.h"
#include "convoy/comm/bootstrap/environment.h"
#include "convoy/kernels/base/error.h"
#include "tests/testing/support/errors.h"

namespace convoy::testing {
namespace {

using launcher::AttemptResult;
using launcher::ExitStatus;
using launcher::HostPlace;
using launcher::HostPool;
using launcher::parse_hosts;
using launcher::RankEnd;
using launcher::RestartBudget;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

using Places = std::vector<HostPlace>;

TEST(LauncherHosts, HaveTheirRanks) {
  EXPECT_EQ(parse_hosts("", std::nullopt), (Places{{"localhost", 1}}));
  EXPECT_EQ(parse_hosts("", 4), (Places{{"localhost", 4}}));
  EXPECT_EQ(parse_hosts("a:2,b:3", std::nullopt), (Places{{"a", 2}, {"b", 3}}));
  EXPECT_EQ(parse_hosts("a:2,b:3", 5), (Places{{"a", 2}, {"b", 3}}));
  EXPECT_EQ(parse_hosts("a,b", 6), (Places{{"a", 3}, {"b", 3}}));
  EXPECT_EQ(parse_hosts("a,b", std::nullopt), (Places{{"a", 1}, {"b", 1}}));
  EXPECT_EQ(parse_hosts("[fe80::1]:2", std::nullopt), (Places{{"fe80::1", 2}}));
}

TEST(LauncherHosts, RefuseContradictions) {
  const auto refusal = [](const std::string& hosts, std::optional<std::int64_t> ranks) {
    return message_of<UsageError>([&] { parse_hosts(hosts, ranks); });
  };
  EXPECT_THAT(refusal("a:x", {}), HasSubstr("found 'a:x', expected HOST or HOST:RANKS"));
  EXPECT_THAT(refusal("a:0", {}), HasSubstr("at least one rank"));
  EXPECT_THAT(refusal("a:2,a:2", {}), HasSubstr("a appears twice"));
  EXPECT_THAT(refusal("a:2,b", {}), HasSubstr("for some hosts"));
  EXPECT_THAT(refusal("a:2,b:2", 3), HasSubstr("has 4 ranks in total, found --ranks 3"));
  EXPECT_THAT(refusal("a,b", 3), HasSubstr("not divisible by 2 hosts"));
  EXPECT_THAT(refusal("localhost:1,b:1", {}), HasSubstr("other hosts cannot reach a loopback address"));
  EXPECT_EQ(parse_hosts("127.0.0.1,127.0.0.2", {}).size(), 2u);
  EXPECT_THAT(refusal(",", {}), HasSubstr("found no host"));
}

TEST(LauncherHosts, HaveSpares) {
  const Places hosts = {{"a", 2}};
  EXPECT_EQ(parse_hosts("c:2,d:4", {}, "--spares", hosts), (Places{{"c", 2}, {"d", 4}}));
  const auto refusal = [&](const std::string& spares) {
    return message_of<UsageError>([&] { parse_hosts(spares, {}, "--spares", hosts); });
  };
  EXPECT_THAT(refusal("c:2,a:2"), HasSubstr("--spares c:2,a:2: a appears twice"));
  EXPECT_THAT(refusal("c:x"), HasSubstr("--spares: found 'c:x'"));
  EXPECT_THAT(refusal("localhost"), HasSubstr("cannot reach a loopback address"));
}

TEST(LauncherCommand, RunsTheAgentOnTheHost) {
  EXPECT_THAT(launcher::agent_command("/bin/remote -h {host} root@{host}", "node1", {"/bin/agent", "--x"}),
              ElementsAre("/bin/remote", "-h", "node1", "root@node1", "/bin/agent", "--x"));
  EXPECT_EQ(launcher::find_program("sh").substr(launcher::find_program("sh").size() - 3), "/sh");
  EXPECT_THAT(message_of<UsageError>([] { launcher::find_program("no-such-program"); }),
              HasSubstr("no-such-program: program not found"));
  EXPECT_TRUE(launcher::is_this_host("localhost"));
  EXPECT_FALSE(launcher::is_this_host("node1.example"));
}

TEST(LauncherMessages, IgnoreOtherText) {
  EXPECT_EQ(launcher::parse_message("Welcome to node1").kind, "");
  EXPECT_EQ(launcher::parse_message("{\"kind\": 3}").kind, "");
  EXPECT_EQ(launcher::parse_message("[1, 2]").kind, "");
  const launcher::Output output{.id = 3, .is_error = true, .text = "\xff \"quoted\""};
  const launcher::Message message = launcher::parse_message(to_line(launcher::kind::kOutput, output));
  EXPECT_EQ(message.kind, launcher::kind::kOutput);
  EXPECT_EQ(message.content.get<launcher::Output>().text, output.text);
}

TEST(LauncherMessages, KeepBytesThatAreNotUtf8) {
  const launcher::Start start{.command = {"train", "--data", "M\xfcller/100%25"},
                              .directory = "/\xfc",
                              .environment = {{"D", "\xfc"}}};
  const auto read =
      launcher::parse_message(to_line(launcher::kind::kStart, start)).content.get<launcher::Start>();
  EXPECT_EQ(read.command, start.command);
  EXPECT_EQ(read.directory, start.directory);
  EXPECT_EQ(read.environment, start.environment);
}

TEST(LineReader, DividesBytesIntoLines) {
  std::array<int, 2> ends{};
  ASSERT_EQ(pipe(ends.data()), 0);
  launcher::LineReader reader{dist::Socket(ends[0])};
  std::vector<std::string> lines;
  const auto read = [&] { reader.read([&](const std::string& line) { lines.push_back(line); }); };
  const auto write_bytes = [&](const std::string& bytes) {
    ASSERT_EQ(write(ends[1], bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  };
  read();  // does not block
  write_bytes("one\ntw");
  read();
  EXPECT_THAT(lines, ElementsAre("one"));
  write_bytes("o\n\nthree");
  close(ends[1]);
  read();
  EXPECT_THAT(lines, ElementsAre("one", "two", "", "three"));
  EXPECT_FALSE(reader.is_open());
}

ExitStatus wait_for(launcher::ChildProcess& child, std::vector<std::string>& lines) {
  while (true) {
    std::vector<pollfd> descriptors;
    child.add_descriptors(descriptors);
    poll(descriptors.data(), descriptors.size(), 1000);
    const auto status = child.poll_exit();
    child.read_lines([&](launcher::Stream, const std::string& line) { lines.push_back(line); });
    if (status) return *status;
  }
}

TEST(ChildProcess, ReportsLinesAndHowItEnds) {
  const auto run = [](const std::string& script) {
    launcher::ChildProcess child(
        {.command = {"/bin/sh", "-c", script}, .environment = dist::environment_variables()});
    std::vector<std::string> lines;
    const ExitStatus status = wait_for(child, lines);
    lines.push_back(describe(status));
    return lines;
  };
  EXPECT_THAT(run("echo out; exit 3"), ElementsAre("out", "has exited with code 3"));
  EXPECT_THAT(run("echo error >&2; kill -9 $$"), ElementsAre("error", "was killed by SIGKILL"));
}

TEST(ChildProcess, ExitsWith127IfItCannotBeExecuted) {
  launcher::ChildProcess child({.command = {"/no/such/program"}, .environment = {}});
  std::vector<std::string> lines;
  EXPECT_EQ(wait_for(child, lines).code, 127);
  EXPECT_THAT(lines, ElementsAre("cannot be executed: /no/such/program"));
}

RankEnd exited(int rank, int code, const char* host = "a") {
  return {.rank = rank, .host = host, .status = ExitStatus{.code = code}};
}
RankEnd killed(int rank, const char* host = "a") {
  return {.rank = rank, .host = host, .status = ExitStatus{.signal = SIGKILL}};
}

/// Decides after the first failure of a job on `hosts`.
launcher::Decision decide(const AttemptResult& result, const Places& hosts, int restarts,
                          std::optional<std::int64_t> min_ranks, const Places& spares = {}) {
  HostPool pool(hosts, spares, 60);
  RestartBudget budget(restarts);
  return launcher::decide(result, pool, budget, min_ranks);
}

TEST(LauncherDecision, RestartsAfterADeath) {
  const Places hosts = {{"a", 2}, {"b", 2}};
  const AttemptResult died{.ends = {exited(0, 4), killed(2, "b"), exited(1, 4), exited(3, 4, "b")}};
  const auto decision = decide(died, hosts, 1, {});
  EXPECT_TRUE(decision.restarts);
  EXPECT_EQ(decision.reason, "rank 2 on b was killed by SIGKILL");
  EXPECT_EQ(decision.hosts, hosts);
  EXPECT_FALSE(decide(died, hosts, 0, {}).restarts);
  EXPECT_EQ(decide(died, hosts, 0, {}).exit_code, 137);
  EXPECT_TRUE(decide({.ends = {exited(0, 4), exited(1, 4)}}, {{"a", 2}}, 1, {}).restarts);
  EXPECT_TRUE(decide({.ends = {exited(0, 7)}}, {{"a", 1}}, 1, {}).restarts);  // a device may recover
  EXPECT_TRUE(decide({.ends = {exited(0, 9)}}, {{"a", 1}}, 1, {}).restarts);  // and so may a file server
}

TEST(LauncherDecision, DoesNotRepeatPermanentErrors) {
  for (const int code : {2, 3, 5, 6}) {
    const auto decision = decide({.ends = {exited(0, 4), exited(1, code)}}, {{"a", 2}}, 5, {});
    EXPECT_FALSE(decision.restarts);
    EXPECT_EQ(decision.exit_code, code);
  }
}

TEST(LauncherDecision, EndsAfterSuccessOrAStopSignal) {
  EXPECT_FALSE(decide({.ends = {exited(0, 0), exited(1, 0)}}, {{"a", 2}}, 5, {}).restarts);
  EXPECT_EQ(decide({.ends = {exited(0, 0), exited(1, 0)}}, {{"a", 2}}, 5, {}).exit_code, 0);
  const AttemptResult drained{.ends = {exited(0, 143), exited(1, 143, "b")}, .drained_hosts = {"b"}};
  EXPECT_FALSE(decide(drained, {{"a", 1}, {"b", 1}}, 5, {}).restarts);
  EXPECT_EQ(decide(drained, {{"a", 1}, {"b", 1}}, 5, {}).exit_code, 143);
  const auto by_launcher = decide({.ends = {killed(0)}, .signal = SIGINT}, {{"a", 1}}, 5, {});
  EXPECT_FALSE(by_launcher.restarts);
  EXPECT_EQ(by_launcher.exit_code, 130);
}

TEST(LauncherDecision, RestartsWithMoreRanksAtNoExpense) {
  HostPool pool({{"a", 1}, {"b", 1}}, {}, 60);
  RestartBudget budget(1);
  const AttemptResult grows{.ends = {exited(0, 143)}, .grows = true};
  const auto decision = launcher::decide(grows, pool, budget, 1);
  EXPECT_TRUE(decision.restarts);
  EXPECT_EQ(decision.reason, "");
  EXPECT_EQ(ranks_of(decision.hosts), 2);
  EXPECT_EQ(budget.count(), 0);
  const AttemptResult fails{.ends = {killed(0), exited(1, 143)}, .grows = true};
  EXPECT_EQ(launcher::decide(fails, pool, budget, 1).reason, "rank 0 on a was killed by SIGKILL");
  EXPECT_EQ(budget.count(), 1);
}

TEST(LauncherDecision, ReplacesALostHostByASpareOne) {
  const Places hosts = {{"a", 2}, {"b", 2}}, spares = {{"c", 4}};
  const RankEnd lost{.rank = 2, .host = "b"};
  const Places replaced = {{"a", 2}, {"c", 2}};
  EXPECT_EQ(decide({.ends = {lost, exited(0, 4)}}, hosts, 1, {}, spares).hosts, replaced);
  EXPECT_EQ(decide({.missing_hosts = {"b"}}, hosts, 1, {}, spares).hosts, replaced);
  const AttemptResult drained{.ends = {exited(0, 143)}, .drained_hosts = {"b"}};
  EXPECT_TRUE(decide(drained, hosts, 1, {}, spares).restarts);
  EXPECT_EQ(decide(drained, hosts, 1, {}, spares).hosts, replaced);
  EXPECT_EQ(decide({.ends = {killed(0)}}, hosts, 1, {}, spares).hosts,
            (Places{{"a", 1}, {"b", 2}, {"c", 1}}));
}

TEST(HostPool, UsesAHostAgainAfterACoolDownThatDoubles) {
  HostPool pool({{"a", 2}, {"b", 2}}, {}, 60);
  const Places both = {{"a", 2}, {"b", 2}}, one = {{"a", 2}};
  auto now = HostPool::Clock::now();
  for (const int seconds : {60, 120, 240, 480, 960, 1920, 3600, 3600}) {
    EXPECT_EQ(pool.choose(false, now), both);
    for (int rank = 0; rank < 2; ++rank) pool.exclude("b", 1, now);  // two ranks of the same failure
    EXPECT_EQ(pool.choose(false, now), one);
    EXPECT_EQ(pool.choose(true, now), both);
    now += std::chrono::seconds(seconds - 1);
    EXPECT_EQ(pool.choose(false, now), one);
    now += std::chrono::seconds(2);
  }
  HostPool ranks({{"a", 2}, {"b", 2}}, {}, 60);
  ranks.exclude({killed(0), exited(1, 4), exited(2, 143, "b"), exited(3, 0, "b")});
  EXPECT_EQ(ranks.choose(false), (Places{{"a", 1}, {"b", 2}}));
}

TEST(RestartBudget, CountsAnewAfterANewerCheckpoint) {
  RestartBudget budget(2);
  const RankEnd end = killed(0);
  const auto count_after = [&](std::int64_t saved) {
    budget.add(&end, saved);
    return budget.count();
  };
  EXPECT_EQ(count_after(-1), 1);
  EXPECT_EQ(count_after(100), 1);
  EXPECT_EQ(count_after(100), 2);
  EXPECT_EQ(count_after(-1), 3);  // the ranks died before they had saved one
  EXPECT_TRUE(budget.is_used_up());
  EXPECT_EQ(count_after(100), 4);
  EXPECT_EQ(count_after(101), 1);
  EXPECT_FALSE(budget.is_used_up());
}

TEST(RestartBudget, EndsAfterThreeFailuresInOneStep) {
  const auto failing = [](std::int64_t step) {
    RankEnd end = killed(0);
    end.step = step;
    return end;
  };
  RestartBudget budget(100);
  const RankEnd lost{.host = "b", .step = 7};
  for (const RankEnd& end : {failing(7), failing(7), failing(8), failing(7), failing(7), lost, failing(7),
                             failing(-1), failing(-1), failing(-1), failing(7), failing(7)}) {
    budget.add(&end, -1);
    EXPECT_FALSE(budget.is_used_up());
    EXPECT_EQ(budget.early_end(), "");
  }
  const RankEnd third = failing(7);
  budget.add(&third, -1);
  EXPECT_TRUE(budget.is_used_up());
  EXPECT_EQ(budget.early_end(), "; the job ends after 3 failures in a row in step 8");
}

/// A stop signal that convoy-launch has not received: of one rank, or of a host that ends.
TEST(LauncherDecision, RestartsIfOnlyRanksOrAHostWereStopped) {
  const Places hosts = {{"a", 1}, {"b", 1}};
  const AttemptResult stopped{.ends = {exited(0, 143), exited(1, 143, "b")}};
  EXPECT_TRUE(decide(stopped, hosts, 1, {}).restarts);
  EXPECT_EQ(decide(stopped, hosts, 1, {}).hosts, hosts);
  EXPECT_FALSE(decide(stopped, hosts, 0, {}).restarts);
  EXPECT_EQ(decide(stopped, hosts, 0, {}).exit_code, 143);
  AttemptResult drained = stopped;
  drained.drained_hosts = {"b"};
  EXPECT_TRUE(decide(drained, hosts, 1, 1).restarts);
  EXPECT_EQ(decide(drained, hosts, 1, 1).hosts, (Places{{"a", 1}}));
}

TEST(LauncherDecision, LeavesOutFailedRanksAndHosts) {
  const Places hosts = {{"a", 2}, {"b", 2}};
  const RankEnd lost{.rank = 2, .host = "b"}, lost_too{.rank = 3, .host = "b"};
  const AttemptResult host_lost{.ends = {lost, lost_too, exited(0, 4), exited(1, 4)}};
  EXPECT_EQ(decide(host_lost, hosts, 1, 2).hosts, (Places{{"a", 2}}));
  EXPECT_FALSE(decide(host_lost, hosts, 1, 3).restarts);
  EXPECT_EQ(decide({.ends = {killed(1), exited(0, 4)}}, hosts, 1, 3).hosts, (Places{{"a", 1}, {"b", 2}}));
  EXPECT_EQ(decide({.missing_hosts = {"a"}}, hosts, 1, 2).hosts, (Places{{"b", 2}}));
  EXPECT_EQ(decide({.missing_hosts = {"a"}}, hosts, 1, {}).hosts, hosts);
  EXPECT_EQ(decide({.missing_hosts = {"a"}}, hosts, 1, {}).reason, "a cannot be reached");
  // A rank that did not end in time is not at fault.
  RankEnd late = killed(0);
  late.was_late = true;
  EXPECT_EQ(decide({.ends = {killed(3, "b"), late}}, hosts, 1, 2).hosts, (Places{{"a", 2}, {"b", 1}}));
}

}  // namespace
}  // namespace convoy::testing
