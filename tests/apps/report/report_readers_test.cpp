// Other programs read what convoy-report writes: Chromium the page, and TensorBoard its event files. Runs with
// `ctest -L soak` only, and skips what is not installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "convoy/apps/report/tensorboard.h"
#include "tests/apps/programs.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// Collects errors from the first script on.
constexpr const char* kBefore = R"html(<script>
const problems = [];
addEventListener("error", (event) => problems.push(event.message || "a file cannot be loaded"), true);
addEventListener("securitypolicyviolation", (event) => problems.push(`forbidden: ${event.violatedDirective}`));
console.error = (...texts) => problems.push(texts.join(" "));
</script>)html";

std::string from_base64(const std::string& text) {
  const std::string digits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string bytes;
  unsigned group = 0, bits = 0;
  for (const char c : text) {
    if (c == '=') break;
    group = group << 6 | static_cast<unsigned>(digits.find(c));
    bits += 6;
    if (bits >= 8) bytes += static_cast<char>(group >> (bits -= 8) & 0xff);
  }
  return bytes;
}

/// Two runs with predictions and traces, one of them on two ranks.
class ReportReaders : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(workshop.train("one", {"--lr", "0.001", "--trace", workshop.path("one.json")}).exit_code, 0);
    ASSERT_EQ(workshop.train("two", {"--lr", "0.002", "--devices", "2", "--trace", workshop.path("two.json")})
                  .exit_code,
              0);
  }
  Workshop workshop;
};

/// Returns the path of Chromium, or an empty string.
std::string find_browser() {
  for (const char* name : {"/usr/bin/chromium-headless-shell", "/usr/bin/chromium"})
    if (fs::exists(name)) return name;
  return "";
}

/// Writes the page of these runs, opens it in a window of `width` pixels, and returns what page_checks.js found.
Json check_page(const Workshop& workshop, const Arguments& runs, int width) {
  const fs::path file = workshop.path("report.html");
  Arguments arguments = {"--out", file};
  for (const std::string& run : runs) arguments.push_back(workshop.path(run));
  EXPECT_EQ(workshop.run("convoy-report", arguments).exit_code, 0);
  std::string page = read_text(file);
  page.insert(page.find("<style>"), kBefore);
  page.insert(page.find("</body>"),
              "<script>" + read_text(testing::source_path("tests/apps/report/page_checks.js")) + "</script>");
  std::ofstream(file) << page;
  const ProcessResult drawn =
      run_program({find_browser(), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                   "--virtual-time-budget=5000", "--window-size=" + std::to_string(width) + ",900",
                   "--dump-dom", "file://" + file.string()});
  const std::string begin = "<pre id=\"checks\">";
  const std::size_t from = drawn.out.find(begin);
  EXPECT_NE(from, std::string::npos) << drawn.err;
  if (from == std::string::npos) return {};
  const std::size_t text = from + begin.size();
  return Json::parse(from_base64(drawn.out.substr(text, drawn.out.find("</pre>", text) - text)));
}

TEST_F(ReportReaders, ChromiumDrawsThePage) {
  if (find_browser().empty()) GTEST_SKIP() << "needs Chromium (Debian: chromium-headless-shell)";
  for (const Arguments& runs : {Arguments{"one"}, Arguments{"one", "two"}})
    for (const int width : {390, 1280}) {
      const Json checks = check_page(workshop, runs, width);
      ASSERT_TRUE(checks.is_object());
      EXPECT_EQ(checks["problems"], Json::array());
      for (const char* theme : {"light", "dark"}) {
        const Json& found = checks["themes"][theme];
        EXPECT_EQ(found["width"], width);
        EXPECT_EQ(found["overflow"], 0) << theme;
        EXPECT_EQ(found["outside"], Json::array()) << theme;
        EXPECT_EQ(found["empty"], Json::array()) << theme;
      }
      EXPECT_NE(checks["themes"]["light"]["ink"], checks["themes"]["dark"]["ink"]);
      const std::string figures = checks["figures"].dump();
      for (const char* title :
           {"Training loss", "Test accuracy", "Training accuracy", "Test loss", "Learning rate",
            "Images per second", "Confusion matrix", "Timeline of a step"})
        EXPECT_THAT(figures, HasSubstr(title));
      for (const Json& link : checks["links"]) EXPECT_EQ(link, true);
      EXPECT_GE(checks["mistakes"], 10);
      for (const Json& svg : checks["saved"]) {
        EXPECT_THAT(svg.get<std::string>(), ::testing::StartsWith("<svg"));
        EXPECT_THAT(svg.get<std::string>(), ::testing::Not(HasSubstr("var(--")))
            << "needs the style sheet of the page";
      }
    }
}

TEST_F(ReportReaders, ChromiumDrawsTheMeanOfARepetition) {
  if (find_browser().empty()) GTEST_SKIP() << "needs Chromium (Debian: chromium-headless-shell)";
  ASSERT_EQ(workshop.train("repeated", {"--lr", "0.002", "--repeat", "2"}).exit_code, 0);
  const Json checks = check_page(workshop, {"repeated"}, 1280);
  ASSERT_TRUE(checks.is_object());
  EXPECT_EQ(checks["problems"], Json::array());
  const auto title = std::find(checks["figures"].begin(), checks["figures"].end(), "Test accuracy, mean");
  ASSERT_NE(title, checks["figures"].end()) << checks["figures"];
  const std::string figure = checks["saved"][static_cast<std::size_t>(title - checks["figures"].begin())];
  EXPECT_THAT(figure, HasSubstr("class=\"error\"")) << "no error bar";
  EXPECT_THAT(checks["results"].get<std::string>(), HasSubstr("mean of 2 runs in "));
  EXPECT_THAT(checks["results"].get<std::string>(), HasSubstr("% ± "));
  EXPECT_THAT(checks["results"].get<std::string>(), HasSubstr("training accuracy"));
}

TEST_F(ReportReaders, ChromiumRunsNoMarkupOfFiles) {
  if (find_browser().empty()) GTEST_SKIP() << "needs Chromium (Debian: chromium-headless-shell)";
  const fs::path run = workshop.path("<b>hostile");
  fs::create_directories(run);
  const Json text =
      "</script><script>injected = 1</script><img src=x onerror='injected = 1'>" + std::string(300, 'x');
  const Json events[] = {{{"event", "start"},
                          {"config", {{"model", text}, {"dataset", text}, {text, text}}},
                          {"hosts", {text}},
                          {"devices", {text}}},
                         {{"event", "step"}, {"step", 1}, {"loss", 1.5}, {"step_ms", 2}},
                         {{"event", "eval"}, {"step", 1}, {"loss", nullptr}, {"accuracy", 0.5}},
                         {{"event", "error"}, {"step", 1}, {"message", text}}};
  std::ofstream log(run / "log.jsonl");
  for (const Json& event : events) log << event << "\n";
  log.close();
  std::ofstream(run / "evaluation.json") << Json{{"step", 1},
                                                 {"classes", {text, text}},
                                                 {"images", {2, 1}},
                                                 {"correct", {1, 1}},
                                                 {"confusion", {{1, 1}, {0, 1}}},
                                                 {"mistakes", Json::array()},
                                                 {"mistakes_per_row", 6}};
  for (const Arguments& runs : {Arguments{"<b>hostile"}, Arguments{"one", "<b>hostile"}}) {
    const Json checks = check_page(workshop, runs, 390);
    ASSERT_TRUE(checks.is_object());
    EXPECT_EQ(checks["injected"], false);
    EXPECT_EQ(checks["problems"], Json::array());
    EXPECT_EQ(checks["themes"]["light"]["overflow"], 0) << checks["themes"]["light"]["outside"];
  }
}

TEST_F(ReportReaders, TensorBoardReadsEventFiles) {
  const char* const chosen = std::getenv("CONVOY_TENSORBOARD_PYTHON");
  const std::string python = chosen != nullptr ? chosen : "/usr/bin/python3";
  if (run_program({python, "-c", "import tensorboard"}).exit_code != 0)
    GTEST_SKIP() << "needs TensorBoard; CONVOY_TENSORBOARD_PYTHON names a Python that has it";
  ASSERT_EQ(workshop.run("convoy-report", {workshop.path("one"), "--tensorboard", workshop.path("events")})
                .exit_code,
            0);
  const ProcessResult read = run_program({python, "-c", R"(
import json, sys
from tensorboard.backend.event_processing import event_accumulator
events = event_accumulator.EventAccumulator(sys.argv[1], size_guidance={event_accumulator.SCALARS: 0})
events.Reload()
tags = events.Tags()["scalars"]
print(json.dumps({tag: [[e.wall_time, e.step, e.value] for e in events.Scalars(tag)] for tag in tags}))
)",
                                          workshop.path("events/one")});
  ASSERT_EQ(read.exit_code, 0) << read.err;
  const Json scalars = Json::parse(read.out);
  const std::vector<Json> steps = workshop.events("one", "step"),
                          evaluations = workshop.events("one", "eval");
  ASSERT_EQ(scalars["train/loss"].size(), steps.size());
  for (std::size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(scalars["train/loss"][i][1], steps[i]["step"]);
    EXPECT_EQ(scalars["train/loss"][i][2].get<float>(), steps[i]["loss"].get<float>());
    EXPECT_EQ(scalars["train/lr"][i][2].get<float>(), steps[i]["lr"].get<float>());
  }
  for (std::size_t i = 0; i < evaluations.size(); ++i)
    EXPECT_EQ(scalars["test/accuracy"][i][2].get<float>(), evaluations[i]["accuracy"].get<float>());
  EXPECT_GT(scalars["train/loss"][0][0], 1.7e9) << "seconds since 1970";
}

}  // namespace
}  // namespace convoy::testing
