// convoy-report: pages, tables, event files and errors.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <thread>

#include "convoy/apps/report/page.h"
#include "tests/apps/programs.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
namespace fs = std::filesystem;

/// Returns the data of a page.
Json data_of(const std::string& page) {
  const std::string begin = R"(<script type="application/json" id="data">)";
  const std::size_t from = page.find(begin) + begin.size();
  return Json::parse(page.substr(from, page.find("</script>", from) - from));
}

std::size_t count_of(const std::string& text, const std::string& part) {
  std::size_t count = 0;
  for (std::size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++count;
  return count;
}

constexpr const char* kStart =
    R"({"event":"start","time":"2026-01-31T12:00:00.250Z","elapsed":0,"schema":2,"step":0,"steps_per_epoch":10,"config":{"model":"lenet","dataset":"mnist"}})"
    "\n";

/// A directory with a log.
fs::path write_run(const TempDirectory& directory, const std::string& name, const std::string& log) {
  fs::create_directories(directory.path() / name);
  std::ofstream(directory.path() / name / "log.jsonl") << log;
  return directory.path() / name;
}

TEST(Report, ShowsATraining) {
  const Workshop workshop;
  const fs::path out = workshop.path("run");
  ASSERT_EQ(workshop.train("run", {"--lr", "0.001", "--trace", workshop.path("trace.json")}).exit_code, 0);
  const ProcessResult report = workshop.run("convoy-report", {out});
  ASSERT_EQ(report.exit_code, 0) << report.err;
  EXPECT_EQ(report.err, "");
  EXPECT_EQ(report.out, "page          " + (out / "report.html").string() + "\n");
  const std::string page = read_text(out / "report.html");
  for (const char* link : {" src=", "href=\"http", "@import", "url(http"})
    EXPECT_THAT(page.substr(0, page.find("id=\"d3-license\"")), Not(HasSubstr(link))) << "loads a file";
  const Json data = data_of(page);
  EXPECT_EQ(data["reload_seconds"], 0);
  const Json& run = data["runs"][0];
  EXPECT_EQ(run["name"], "run");
  EXPECT_EQ(run["state"], "complete");
  const std::vector<Json> steps = workshop.events("run", "step");
  EXPECT_EQ(run["curves"]["step"].size(), steps.size());
  EXPECT_EQ(run["curves"]["loss"].back(), steps.back()["loss"]);
  EXPECT_EQ(run["evaluations"].size(), 2U);
  EXPECT_EQ(run["epochs"].size(), 2U);
  EXPECT_EQ(run["result"]["test_accuracy"], workshop.result("run")["test_accuracy"]);
  EXPECT_EQ(run["evaluation"]["confusion"].size(), 10U);
  EXPECT_THAT(run["evaluation"]["mistakes_image"].get<std::string>(),
              ::testing::StartsWith("data:image/png;base64,"));
  EXPECT_EQ(run["start"]["classes"][3], "3");
  EXPECT_EQ(run["start"]["class_images"], (Json{32, 32, 32, 32, 32, 32, 32, 32, 32, 32}));
  EXPECT_EQ(run["samples_image"],
            "data:image/png;base64," + report::to_base64(read_text(out / "samples.png")));
  EXPECT_EQ(run["timeline"]["ranks"].size(), 1U) << "of the file of --trace";
  EXPECT_GE(run["timeline"]["ranks"][0]["spans"].size(), 3U);
}

TEST(Report, ShowsTheSearchOfTheRateAfterAResumption) {
  const TempDirectory directory;
  const std::string start = kStart;
  const fs::path out = write_run(
      directory, "run",
      start.substr(0, start.size() - 2) +
          R"(,"lr_search":{"rates":[0.1,0.2],"losses":[2.5,null],"chosen":0.02,"reason":"a third of 0.6"}})"
          "\n" +
          start);
  const Workshop workshop;
  ASSERT_THAT(workshop.run("convoy-report", {out.string()}), Succeeds());
  const Json run = data_of(read_text(out / "report.html"))["runs"][0];
  EXPECT_EQ(run["lr_search"]["chosen"], 0.02);
  EXPECT_EQ(run["resumed"], 1);
}

TEST(Report, ComparesRunsWhoseNamesDiffer) {
  const TempDirectory directory;
  write_run(directory, "a/run", kStart);
  write_run(directory, "b/run", kStart);
  const fs::path page = directory.path() / "report.html";
  ASSERT_THAT(run_program({program("convoy-report"), directory.path() / "a/run", directory.path() / "b/run/",
                           "--out", page}),
              Succeeds());
  const Json data = data_of(read_text(page));
  EXPECT_EQ(data["runs"][0]["name"], "a/run");
  EXPECT_EQ(data["runs"][1]["name"], "b/run");
}

TEST(Report, ShowsTheRunsOfARepetition) {
  const TempDirectory directory;
  const auto write = [&](const std::string& name, double accuracy) {
    const Json result{{"event", "result"}, {"test_accuracy", accuracy}};
    write_run(directory, name, kStart + result.dump() + "\n");
  };
  write("all/seed-10", 0.9);
  write("all/seed-9", 0.8);
  write("all/seed-x", 0.1);
  fs::create_directories(directory.path() / "all/seed-11");  // not begun
  const std::vector<report::RunDirectories> found =
      report::directories_of_runs({directory.path() / "all", directory.path() / "all/seed-x"});
  ASSERT_EQ(found.size(), 3U);
  EXPECT_EQ(found[0].run.filename(), "seed-9") << "in the order of numbers";
  EXPECT_EQ(found[1].run.filename(), "seed-10");
  EXPECT_EQ(found[2].group, "");
  const ProcessResult report = run_program({program("convoy-report"), directory.path() / "all"});
  ASSERT_EQ(report.exit_code, 0) << report.err;
  const Json data = data_of(read_text(directory.path() / "all/report.html"));
  ASSERT_EQ(data["runs"].size(), 2U);
  EXPECT_EQ(data["runs"][1]["name"], "seed-10");
  EXPECT_EQ(data["runs"][0]["group"], (directory.path() / "all").string());
}

TEST(Report, ShowsTheTrainingsOfASweep) {
  const TempDirectory directory;
  write_run(directory, "all/lr-1", kStart);
  write_run(directory, "all/lr-0.5/seed-1", kStart);
  write_run(directory, "all/lr-0.5/seed-2", kStart);
  write_run(directory, "other", kStart);
  fs::create_directories(directory.path() / "all/lr-2");  // not begun
  const auto found = [&](const std::string& sweep) {
    std::ofstream(directory.path() / "all/sweep.json") << sweep;
    std::vector<std::string> names;
    for (const auto& [run, group] : report::directories_of_runs({directory.path() / "all"}))
      names.push_back(fs::relative(run, directory.path()).string() + " in " + group.filename().string());
    return names;
  };
  using ::testing::ElementsAre;
  const std::string one = R"({"trainings":[{"directory":"lr-1"},)";
  EXPECT_THAT(found(one + R"({"directory":"lr-2"},{"directory":"lr-0.5"}]})"),
              ElementsAre("all/lr-1 in ", "all/lr-0.5/seed-1 in lr-0.5", "all/lr-0.5/seed-2 in lr-0.5"));
  EXPECT_THAT(
      found(one + R"({"directory":"../other"},{"directory":".."},{"directory":""},{"directory":3},7]})"),
      ElementsAre("all/lr-1 in "))
      << "only trainings below the directory";
  for (const char* damaged : {R"({"trainings":7})", R"({"trainings":[]})", "[]", "{", ""})
    EXPECT_THAT(found(damaged), ElementsAre("all in ")) << damaged;
}

TEST(Report, TextOfFilesIsNoMarkup) {
  const TempDirectory directory;
  const std::string hostile = "</script><script>alert(1)</script><!--<img src=x onerror=alert(2)>";
  const std::string escaped = Json(hostile).dump();
  const fs::path run =
      write_run(directory, "run",
                R"({"event":"start","config":{"model":)" + escaped + R"(,"dataset":"mnist"},"devices":[)" +
                    escaped + "]}\n" + R"({"event":"eval","step":3,"accuracy":0.5})" + "\n" +
                    R"({"event":"warning","step":1,"message":)" + escaped + "}\n");
  std::ofstream(run / "evaluation.json") << Json{{"step", 3},
                                                 {"classes", {hostile, "b"}},
                                                 {"images", {1, 1}},
                                                 {"correct", {1, 1}},
                                                 {"confusion", Json::array()},
                                                 {"mistakes", Json::array()},
                                                 {"mistakes_per_row", 6}};
  const std::string page = report::make_page({report::read_run(run)}, 0);
  EXPECT_THAT(page, Not(HasSubstr("alert(1)</script>")));
  EXPECT_THAT(page, Not(HasSubstr("<img")));
  EXPECT_THAT(page, Not(HasSubstr("<!--")));
  const Json data = data_of(page)["runs"][0];
  EXPECT_EQ(data["start"]["config"]["model"], hostile);
  EXPECT_EQ(data["start"]["devices"][0], hostile);
  EXPECT_EQ(data["evaluation"]["classes"][0], hostile);
  EXPECT_EQ(data["messages"][0]["text"], hostile);
}

TEST(Report, PageScriptNeverParsesMarkup) {
  for (const auto& entry : fs::directory_iterator(testing::source_path("apps/report/page"))) {
    if (entry.path().extension() != ".js") continue;
    for (const char* name :
         {"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", ".html("})
      EXPECT_THAT(read_text(entry.path()), Not(HasSubstr(name))) << entry.path();
  }
}

TEST(Report, ErrorsAreOneLineWithTheirExitCode) {
  const TempDirectory directory;
  const auto refusal = [&](const Arguments& arguments, int code) {
    const ProcessResult result = run_program(with({program("convoy-report")}, arguments));
    EXPECT_EQ(result.exit_code, code) << result.err;
    EXPECT_EQ(count_of(result.err, "\n"), 1U) << result.err;
    return result.err;
  };
  EXPECT_THAT(refusal({}, 2), HasSubstr("no run: expected directories of runs"));
  EXPECT_THAT(refusal({directory.path() / "absent"}, 3),
              HasSubstr("absent/log.jsonl: No such file or directory; expected the directory of a run"));
  fs::create_directories(directory.path() / "empty");
  EXPECT_THAT(refusal({directory.path() / "empty"}, 3), HasSubstr("empty/log.jsonl: No such file"));
  fs::create_directories(directory.path() / "odd/log.jsonl");
  EXPECT_THAT(refusal({directory.path() / "odd"}, 3), HasSubstr("Is a directory"));
  const fs::path damaged = write_run(directory, "damaged", "[]\n{\"event\":\n");
  EXPECT_THAT(refusal({damaged}, 3),
              HasSubstr("found no start event, expected the log of convoy-train (2 damaged lines)"));
  const fs::path run = write_run(directory, "run", kStart);
  EXPECT_THAT(refusal({run / "log.jsonl"}, 3),
              HasSubstr("log.jsonl: a file, expected the directory of a run of convoy-train; did you mean " +
                        run.string() + "?"));
  fs::create_directories(directory.path() / "group");
  const fs::path other = write_run(directory, "group/other", kStart);
  EXPECT_THAT(refusal({directory.path()}, 3),
              HasSubstr("; runs below it: " + (directory.path() / "damaged").string() + ", " +
                        other.string() + ", " + run.string() + "\n"));
  EXPECT_THAT(refusal({run, "--out", (run / "log.jsonl" / "x").string()}, 8), HasSubstr("log.jsonl"));
}

TEST(Report, DamagedLinesAreSkippedAndCounted) {
  const TempDirectory directory;
  const fs::path run = write_run(directory, "run",
                                 std::string(kStart) + "{\"event\":\"st\n\n" +
                                     R"({"event":"step","step":20,"loss":1.5,"step_ms":100})" + "\n" +
                                     R"({"event":"step","step":40,"lo)");
  std::ofstream(run / "evaluation.json") << "{";
  std::ofstream(run / "trace.json") << "[]";
  const ProcessResult report = run_program({program("convoy-report"), run});
  EXPECT_EQ(report.exit_code, 0);
  EXPECT_THAT(report.err, HasSubstr("log.jsonl: 2 damaged lines are left out\n"));
  EXPECT_THAT(report.err, HasSubstr("evaluation.json: damaged, and left out\n"));
  EXPECT_THAT(report.err, HasSubstr("trace.json: not a trace of convoy-train, and left out\n"));
  const Json data = data_of(read_text(run / "report.html"))["runs"][0];
  EXPECT_EQ(data["state"], "in progress");
  EXPECT_EQ(data["curves"]["step"], Json{20}) << "the last line is being written";
  EXPECT_EQ(data["messages"].size(), 3U);
}

TEST(Report, EvaluationOfStepsThatAreNotInTheLogIsLeftOut) {
  const TempDirectory directory;
  const fs::path run = write_run(directory, "run", kStart);
  std::ofstream(run / "evaluation.json")
      << R"({"step":30,"classes":["a"],"images":[1],"correct":[1],"confusion":[],"mistakes":[],"mistakes_per_row":6})";
  const report::RunRecord record = report::read_run(run);
  EXPECT_TRUE(record.evaluation.is_null());
  EXPECT_TRUE(record.notes.empty());
}

TEST(Report, DamagedEvaluationIsLeftOut) {
  const TempDirectory directory;
  const fs::path run =
      write_run(directory, "run", std::string(kStart) + R"({"event":"eval","step":3,"accuracy":0.5})" + "\n");
  const Json whole = {{"step", 3},
                      {"classes", {"a", "b"}},
                      {"images", {2, 1}},
                      {"correct", {1, 1}},
                      {"confusion", {{1, 1}, {0, 1}}},
                      {"mistakes", {{{"image", 0}, {"label", 0}, {"prediction", 1}, {"probability", 0.75}}}},
                      {"mistakes_per_row", 6}};
  const auto is_read = [&](const Json& evaluation) {
    std::ofstream(run / "evaluation.json") << evaluation;
    const report::RunRecord record = report::read_run(run);
    EXPECT_EQ(record.notes.empty(), !record.evaluation.is_null());
    return !record.evaluation.is_null();
  };
  EXPECT_TRUE(is_read(whole));
  for (const auto& [name, value] : whole.items()) {
    Json damaged = whole;
    damaged.erase(name);
    EXPECT_FALSE(is_read(damaged)) << "without " << name;
    damaged[name] = "text";
    EXPECT_FALSE(is_read(damaged)) << "text as " << name;
  }
  Json damaged = whole;
  damaged["confusion"][1] = {1};
  EXPECT_FALSE(is_read(damaged));
  damaged = whole;
  damaged["mistakes"][0]["prediction"] = 2;
  EXPECT_FALSE(is_read(damaged)) << "there are two classes";
}

TEST(Report, LongLogsAreAveraged) {
  report::RunRecord run{.directory = "run", .name = "run", .events = {Json::parse(kStart)}};
  for (int step = 1; step <= 5001; ++step)
    run.events.push_back({{"event", "step"}, {"step", step}, {"loss", step}, {"elapsed", 0.1 * step}});
  const Json curves = report::page_data(run)["curves"];
  EXPECT_EQ(curves["group"], 3);
  ASSERT_EQ(curves["step"].size(), 1667U);
  EXPECT_EQ(curves["step"][0], 3);
  EXPECT_EQ(curves["loss"][0], 2.0);
  EXPECT_EQ(curves["step"].back(), 5001);
  EXPECT_NEAR(curves["elapsed"].back().get<double>(), 500.1, 1e-6);
}

TEST(Report, TimelineIsAStepOfMedianLength) {
  Json trace = Json::array();
  double now = 0;
  for (const double ms : {9.0, 2.0, 3.0, 50.0, 4.0})
    for (const int rank : {0, 1}) {
      const auto span = [&](const char* name, double begin, double length) {
        trace.push_back({{"ph", "X"},
                         {"name", name},
                         {"pid", rank},
                         {"tid", 1},
                         {"ts", 1e3 * begin},
                         {"dur", 1e3 * length}});
      };
      span("forward", now, ms - 1);
      span("bucket 0 (1.0 MB)", now, 1);
      span("optimizer", now + ms - 1, 1);
      now += rank == 1 ? ms : 0;
    }
  const Json timeline = report::timeline_of(trace);
  EXPECT_EQ(timeline["step"], 5) << "of 2, 3, 50 and 4 ms";
  EXPECT_EQ(timeline["ms"], 4.0);
  ASSERT_EQ(timeline["ranks"].size(), 2U);
  const Json& spans = timeline["ranks"][1]["spans"];
  ASSERT_EQ(spans.size(), 3U);
  EXPECT_EQ(spans[0], (Json{{"row", 0}, {"name", "forward"}, {"begin", 0.0}, {"length", 3.0}}));
  EXPECT_EQ(spans[1]["row"], 1);
  EXPECT_TRUE(report::timeline_of(Json::array({1, Json::object()})).is_null());
}

TEST(Report, EncodesKnownValues) {
  EXPECT_EQ(report::to_base64(""), "");  // RFC 4648, 10
  EXPECT_EQ(report::to_base64("f"), "Zg==");
  EXPECT_EQ(report::to_base64("fo"), "Zm8=");
  EXPECT_EQ(report::to_base64("foobar"), "Zm9vYmFy");
}

TEST(Report, WatchFollowsATraining) {
  const Workshop workshop;
  const fs::path page = workshop.path("report.html");
  Process training(workshop.train_arguments("run", {"--epochs", "100000", "--resume", "auto"}));
  const auto wait_until = [](auto condition) {
    for (int i = 0; i < 6000 && !condition(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  };
  const auto steps_on_page = [&] {
    return fs::exists(page) ? data_of(read_text(page))["runs"][0]["curves"]["step"].size() : 0;
  };
  wait_until([&] { return !workshop.events("run", "step").empty(); });
  Process watch({program("convoy-report"), workshop.path("run"), "--watch", "--out", page});
  wait_until([&] { return steps_on_page() > 0; });
  const std::size_t before = steps_on_page();
  wait_until([&] { return steps_on_page() > before; });
  EXPECT_GT(steps_on_page(), before);
  EXPECT_GT(data_of(read_text(page))["reload_seconds"], 0);
  training.send(SIGINT);
  training.wait();
  const Json last = workshop.events("run", "step").back();
  const std::string epochs = std::to_string(last["epoch"].get<int>() + 1);
  ASSERT_EQ(workshop.train("run", {"--epochs", epochs, "--resume", "auto"}).exit_code, 0);
  EXPECT_THAT(watch.wait(), Succeeds());
  const Json data = data_of(read_text(page));
  EXPECT_EQ(data["runs"][0]["state"], "complete");
  EXPECT_EQ(data["runs"][0]["resumed"], 1);
  EXPECT_EQ(data["reload_seconds"], 0);
}

TEST(Report, WatchEndsWithASignal) {
  const TempDirectory directory;
  const fs::path run = write_run(directory, "run", kStart);
  Process watch({program("convoy-report"), run, "--watch"});
  while (!fs::exists(run / "report.html") && watch.running())
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  watch.send(SIGINT);
  EXPECT_EQ(watch.wait().exit_code, 130);
  EXPECT_EQ(data_of(read_text(run / "report.html"))["reload_seconds"], 0);
}

}  // namespace
}  // namespace convoy::testing
