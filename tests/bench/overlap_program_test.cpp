// Tests of the program convoy-bench-overlap.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "bench/overlap/plans.h"
#include "bench/overlap/record.h"
#include "convoy/engine/io/file.h"
#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/process.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::bench {
namespace {

using convoy::testing::ProcessResult;
using convoy::testing::TempDirectory;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using Arguments = std::vector<std::string>;
using Json = nlohmann::ordered_json;

ProcessResult run(Arguments arguments) {
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe").parent_path();
  arguments.insert(arguments.begin(), (program / "convoy-bench-overlap").string());
  return convoy::testing::run_program(arguments);
}

std::string contents_of(const std::filesystem::path& file) { return io::read_text_file(file, 1 << 24); }

/// Returns the path of a record written by --record: a step of 1.5 s on two cores.
std::string stored(const std::string& model) {
  return testing::source_path("tests/bench/records/" + model + ".json");
}

TEST(OverlapProgram, RecordsMeasuresRealStepsAndReplays) {
  const TempDirectory directory;
  const auto path = [&](const char* name) { return (directory.path() / name).string(); };
  const ProcessResult recorded = run({"--model", "lenet", "--batch-size", "2", "--steps", "1", "--device",
                                      "cpu", "--threads", "1", "--real", "1", "--bandwidth", "25,0.5",
                                      "--record", path("step.json"), "--json", path("real.json")});
  ASSERT_EQ(recorded.exit_code, 0) << recorded.err;
  EXPECT_THAT(recorded.out,
              AllOf(HasSubstr("lenet, batch 2, fp32, on cpu, 1 thread"), HasSubstr("real: waited")));
  const Json real = Json::parse(contents_of(path("real.json")));
  EXPECT_EQ(real.at("rows").size(), 16U);  // types, links, plans
  for (const Json& row : real.at("rows")) EXPECT_GE(row.at("real_waited_ms").get<double>(), 0);

  const auto replay = [&](const char* json, const char* svg) {
    const ProcessResult result = run({"--replay", path("step.json"), "--bandwidth", "25,0.5", "--json",
                                      path(json), "--timeline", path(svg)});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.err, IsEmpty());
    return result.out;
  };
  EXPECT_EQ(replay("a.json", "a.svg"), replay("b.json", "b.svg"));
  EXPECT_EQ(contents_of(path("a.json")), contents_of(path("b.json")));
  EXPECT_EQ(contents_of(path("a.svg")), contents_of(path("b.svg")));
  EXPECT_THAT(contents_of(path("a.svg")),
              AllOf(HasSubstr("25 GB/s"), HasSubstr("0.5 GB/s"), HasSubstr("</svg>")));
  Json simulated = Json::parse(contents_of(path("a.json")));
  for (std::size_t i = 0; i < 16; ++i)  // both are of the recorded step
    EXPECT_EQ(simulated["rows"][i]["exposed_ms"], real["rows"][i]["exposed_ms"]);
}

TEST(OverlapProgram, ReportsErrorsInOneLine) {
  const TempDirectory directory;
  const std::string damaged = directory.write("damaged.json", "{\"format\": 1").string();
  const auto expect_refused = [](const Arguments& arguments, const std::string& words) {
    const ProcessResult result = run(arguments);
    EXPECT_EQ(result.exit_code, 2) << words;
    EXPECT_THAT(result.err, HasSubstr(words));
    EXPECT_EQ(std::count(result.err.begin(), result.err.end(), '\n'), 1) << result.err;
    EXPECT_THAT(result.out, IsEmpty());
  };
  expect_refused({"--bandwidth", "475,,1"}, "--bandwidth: found '475,,1', expected comma-separated numbers");
  expect_refused({"--bandwidth", "25;1"}, "--bandwidth: found '25;1'");
  expect_refused({"--bandwidth", "0"}, "--bandwidth: found '0'");
  expect_refused({"--bandwidth", "nan"}, "--bandwidth: found 'nan'");
  expect_refused({"--ranks", "1"}, "--ranks");
  expect_refused({"--latency-us", "-1"}, "--latency-us");
  expect_refused({"--model", "resnet19"}, "--model");
  expect_refused({"--precision", "fp16", "--device", "cpu"}, "--precision fp16");
  expect_refused({"--scale-to", "0"}, "--scale-to");
  expect_refused({"--real", "1", "--scale-to", "1.5"}, "--real: found --scale-to");
  expect_refused({"--replay", damaged}, "--replay " + damaged + ": found no valid record");
  expect_refused({"--replay", directory.path() / "none.json"}, "none.json");
  expect_refused({"--replay", stored("resnet18"), "--model", "resnet18"}, "--model: found --replay");
  expect_refused({"--replay", stored("resnet18"), "--real", "1"}, "--real: found --replay");
}

TEST(OverlapProgram, ReplaysStoredRecords) {
  for (const std::string model : {"resnet18", "resnet34", "resnet50", "resnet20"}) {
    const ProcessResult result = run({"--replay", stored(model), "--scale-to", "1.5"});
    EXPECT_EQ(result.exit_code, 0) << result.err;
    EXPECT_THAT(result.out, AllOf(HasSubstr(model + ", batch"), HasSubstr("a projection"),
                                  HasSubstr("| one per parameter |"), Not(HasSubstr("real"))));
  }
}

}  // namespace
}  // namespace convoy::bench
