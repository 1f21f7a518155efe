// Pictures of a page of fixed data in Chromium, compared with those in screenshots/.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>

#include "tests/apps/report/browser.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;

constexpr int kSteps = 240, kEpochs = 6;
constexpr double kStepSeconds = 0.05;

void write_log(const fs::path& directory) {
  std::ofstream log(directory / "log.jsonl");
  const auto add = [&](Json event, int step) {
    event["step"] = step;
    event["elapsed"] = kStepSeconds * step;
    event["time"] = "2026-01-02T03:04:05.000Z";
    log << event << "\n";
  };
  add({{"event", "start"},
       {"version", "1.2.3"},
       {"steps_per_epoch", kSteps / kEpochs},
       {"config",
        {{"model", "resnet20"}, {"dataset", "folder"}, {"lr", 0.1}, {"augment", {"crop=4", "flip"}}}},
       {"hosts", {"node1"}},
       {"devices", {"cpu", "cpu"}},
       {"world_size", 2},
       {"ranks", "mpi"},
       {"model_parameters", 272474},
       {"train_images", 5120},
       {"test_images", 1024}},
      0);
  add({{"event", "warning"}, {"message", "3 files of other types are left out"}}, 0);
  for (int step = 1; step <= kSteps; ++step) {
    const double done = static_cast<double>(step) / kSteps;
    add({{"event", "step"},
         {"loss", 2.3 * std::exp(-2.5 * done) + 0.25 * std::sin(1.7 * step) * std::exp(-done)},
         {"lr", 0.05 * (1 + std::cos(3.14159 * done))},
         {"images_per_second", 2500 + 200 * std::sin(0.4 * step)},
         {"step_ms", 50 + 4 * std::sin(0.4 * step)}},
        step);
    if (step % (kSteps / kEpochs) != 0) continue;
    const double accuracy = 0.9 - 0.6 * std::exp(-4 * done);
    add({{"event", "epoch"}, {"accuracy", accuracy - 0.03}, {"loss", 2 - 1.5 * done}}, step);
    add({{"event", "eval"}, {"accuracy", accuracy}, {"loss", 1.9 - 1.2 * done}, {"best", true}}, step);
  }
  add({{"event", "result"},
       {"test_accuracy", 0.889},
       {"test_loss", 0.7},
       {"best_accuracy", 0.889},
       {"best_step", kSteps},
       {"train_seconds", 4242},
       {"images_per_second", 2500},
       {"steps", kSteps}},
      kSteps);
}

void write_evaluation(const fs::path& directory) {
  constexpr int kSide = 32, kMistakes = 6;
  Json mistakes = Json::array();
  for (int i = 0; i < kMistakes; ++i)
    mistakes.push_back(
        {{"image", 7 * i}, {"label", i % 4}, {"prediction", (i + 1) % 4}, {"probability", 0.99 - 0.03 * i}});
  std::ofstream(directory / "evaluation.json")
      << Json{{"step", kSteps},
              {"classes", {"aeroplane", "bird", "cat", "dog"}},
              {"images", {256, 256, 256, 256}},
              {"correct", {240, 230, 215, 225}},
              {"confusion", {{240, 10, 4, 2}, {12, 230, 8, 6}, {5, 9, 215, 27}, {2, 5, 24, 225}}},
              {"mistakes", mistakes},
              {"mistakes_per_row", kMistakes}};
  // Few colors, so that the palette of a reference has all of them.
  Picture mistakes_image = Picture::plain(kMistakes * (kSide + 2) - 2, kSide, 3, 0);
  for (std::size_t i = 0; i < mistakes_image.pixels.size(); ++i)
    mistakes_image.pixels[i] = static_cast<std::uint8_t>(80 * (i / 24 % 4));
  std::ofstream(directory / "mistakes.png", std::ios::binary) << png(mistakes_image);
}

void write_trace(const fs::path& directory) {
  Json events = Json::array();
  const auto add = [&](int rank, const char* name, double begin_ms, double ms) {
    events.push_back({{"ph", "X"},
                      {"name", name},
                      {"pid", rank},
                      {"tid", 0},
                      {"ts", 1000 * begin_ms},
                      {"dur", 1000 * ms}});
  };
  for (int step = 0; step < 4; ++step)
    for (const int rank : {0, 1}) {
      const double begin = 50 * step;
      add(rank, "data wait", begin, 1 + rank);
      add(rank, "forward", begin + 1 + rank, 15);
      add(rank, "backward", begin + 16 + rank, 26);
      add(rank, "bucket 0 (0.5 MB)", begin + 25, 6);
      add(rank, "bucket 1 (0.6 MB)", begin + 38, 7);
      add(rank, "wait for gradients", begin + 42 + rank, 3 - rank);
      add(rank, "optimizer", begin + 45, 4);
    }
  std::ofstream(directory / "trace.json") << Json{{"traceEvents", events}};
}

/// The page of a run with fixed data.
class ReportScreenshots : public ::testing::Test {
 protected:
  void SetUp() override {
    if (find_browser().empty()) GTEST_SKIP() << "needs Chromium (Debian: chromium-headless-shell)";
    const fs::path run = workshop.path("resnet20-folder");
    fs::create_directories(run);
    write_log(run);
    write_evaluation(run);
    write_trace(run);
    page = std::regex_replace(page_of(workshop, {"resnet20-folder"}),
                              std::regex(R"("version":"[^"]*","generated":"[^"]*")"),
                              R"("version":"1.2.3","generated":"2026-01-02 03:04:05 UTC")");
  }

  Workshop workshop;
  std::string page;
};

TEST_F(ReportScreenshots, AreThoseOfTheReferences) {
  // The width of a fixed text in the font of the references, DejaVu Sans. Another font has other line breaks.
  constexpr double kFontWidth = 691.99;
  // Versions of Chromium differ in the edges of letters and lines. One tile in another row changes 8 % of the desktop.
  constexpr double kMaxDifference = 0.005;
  if (run_program({"/bin/sh", "-c", "fc-list 'DejaVu Sans:style=Book' | grep -q ."}).exit_code != 0)
    GTEST_SKIP() << "needs the font of the references, DejaVu Sans (Debian: fonts-dejavu-core, fontconfig)";
  EXPECT_NEAR(font_width(workshop, page), kFontWidth, 0.5);
  const std::pair<const char*, Window> windows[] = {{"desktop_light", {1280, 3700, "light"}},
                                                    {"desktop_dark", {1280, 3700, "dark"}},
                                                    {"phone_light", {390, 5800, "light"}},
                                                    {"phone_dark", {390, 5800, "dark"}}};
  for (const auto& [name, window] : windows) {
    const fs::path reference = source_path(fmt::format("tests/apps/report/screenshots/{}.png", name));
    const Picture found = take_screenshot(workshop, page, window);
    const double differs = fs::exists(reference) ? difference(found, read_picture(reference)) : 1;
    if (differs <= kMaxDifference) continue;
    const fs::path rejected = fs::path(reference).replace_extension(".found.png");
    std::ofstream(rejected, std::ios::binary) << to_palette_png(found);
    ADD_FAILURE() << reference << ": found " << differs << " of the pixels different, expected at most "
                  << kMaxDifference << "; compare it with " << rejected << ", and if that is right: mv "
                  << rejected << " " << reference;
  }
}

}  // namespace
}  // namespace convoy::testing
