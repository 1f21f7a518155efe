// Other programs read what convoy-report writes: Chromium the page. Runs with
// `ctest -L soak` only, and skips what is not installed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "tests/apps/report/browser.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

/// Two runs with predictions and traces, one of them on two ranks.
class ReportReaders : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(workshop.train("one", {"--lr", "0.001", "--trace", workshop.path("one.json")}).exit_code, 0);
    ASSERT_THAT(
        workshop.train("two", {"--lr", "0.002", "--devices", "2", "--trace", workshop.path("two.json")}),
        Succeeds());
  }
  Workshop workshop;
};

/// Checks the files that the buttons of the figures save.
void check_saved_files(const Json& files) {
  for (const Json& file : files) {
    const std::string svg = file["svg"];
    EXPECT_THAT(svg, ::testing::StartsWith("<svg"));
    EXPECT_THAT(svg, ::testing::Not(HasSubstr("var(--"))) << "needs the style sheet of the page";
    EXPECT_THAT(file["names"][0].get<std::string>(), ::testing::EndsWith(".svg"));
    EXPECT_THAT(file["names"][1].get<std::string>(), ::testing::EndsWith(".png"));
    EXPECT_EQ(file["signature"], Json({0x89, 0x50, 0x4e, 0x47, 0x0d, 0x0a, 0x1a, 0x0a})) << file["names"];
    // The PNG has two pixels for each of the page, whose sizes may be fractions.
    for (const int i : {0, 1})
      EXPECT_NEAR(file["size"][i].get<double>(), 2 * file["drawnSize"][i].get<double>(), 2) << file["names"];
    EXPECT_GT(file["inked"], 0.005) << file["names"] << " has no drawing";
  }
}

/// Checks what the controls of the curves do.
void check_controls(const Json& checks) {
  // One path without smoothing; with it the curve itself and the smoothed one, which moves up and down less.
  const Json& at = checks["smoothing"];
  ASSERT_EQ(at[0].size(), 1U);
  ASSERT_EQ(at[1].size(), 2U);
  EXPECT_EQ(at[1][0], at[0][0]);
  EXPECT_EQ(at[2][0], at[0][0]);
  EXPECT_LT(at[1][1], 0.9 * at[0][0].get<double>());
  EXPECT_LT(at[2][1], 0.9 * at[1][1].get<double>());
  EXPECT_EQ(checks["axes"], (Json{"time since the start", "epoch", "step"}));
}

TEST_F(ReportReaders, ChromiumDrawsThePage) {
  if (find_browser().empty()) GTEST_SKIP() << "needs Chromium (Debian: chromium-headless-shell)";
  for (const Arguments& runs : {Arguments{"one"}, Arguments{"one", "two"}})
    for (const int width : {390, 1280}) {
      const Json checks = check_page(workshop, page_of(workshop, runs), width);
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
      if (runs.size() == 1 && width == 1280) {
        EXPECT_EQ(checks["tilesOfRows"], Json({4, 4})) << "tiles of results";
      }
      check_saved_files(checks["saved"]);
      check_controls(checks);
    }
}

TEST_F(ReportReaders, ChromiumDrawsTheMeanOfARepetition) {
  if (find_browser().empty()) GTEST_SKIP() << "needs Chromium (Debian: chromium-headless-shell)";
  ASSERT_EQ(workshop.train("repeated", {"--lr", "0.002", "--repeat", "2"}).exit_code, 0);
  const Json checks = check_page(workshop, page_of(workshop, {"repeated"}), 1280);
  ASSERT_TRUE(checks.is_object());
  EXPECT_EQ(checks["problems"], Json::array());
  const auto title = std::find(checks["figures"].begin(), checks["figures"].end(), "Test accuracy, mean");
  ASSERT_NE(title, checks["figures"].end()) << checks["figures"];
  const std::string figure =
      checks["saved"][static_cast<std::size_t>(title - checks["figures"].begin())]["svg"];
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
    const Json checks = check_page(workshop, page_of(workshop, runs), 390);
    ASSERT_TRUE(checks.is_object());
    EXPECT_EQ(checks["injected"], false);
    EXPECT_EQ(checks["problems"], Json::array());
    EXPECT_EQ(checks["themes"]["light"]["overflow"], 0) << checks["themes"]["light"]["outside"];
  }
}

}  // namespace
}  // namespace convoy::testing
