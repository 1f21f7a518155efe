// Tests that evaluation and prediction of a checkpoint agree with its training run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>

#include "convoy/datasets/formats/readers.h"
#include "convoy/kernels/base/json_text.h"
#include "convoy/kernels/base/random.h"
#include "tests/apps/find_python.h"
#include "tests/apps/programs.h"
#include "tests/testing/support/image_files.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

/// Trains LeNet on 16x16 images of three colors, which it learns quickly.
class Colors : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    workshop = new Workshop;
    write_color_directories(workshop->path("colors"));
    ASSERT_THAT(run_program({program("convoy-train"), "--model", "lenet", "--dataset", "folder", "--data",
                             workshop->path("colors").string(), "--batch-size", "12", "--epochs", "20",
                             "--eval-every", "0", "--out", workshop->path("run").string(), "--threads", "1",
                             "--lr", "0.05"}),
                Succeeds());
  }
  static void TearDownTestSuite() {
    delete workshop;
    workshop = nullptr;
  }
  static std::string checkpoint() { return workshop->path("run").string(); }
  static Workshop* workshop;
};
Workshop* Colors::workshop = nullptr;

struct Npy {
  std::vector<std::int64_t> shape;
  std::vector<float> values;
};

Npy read_npy(const std::filesystem::path& file) {
  const std::string bytes = read_text(file);
  EXPECT_EQ(bytes.substr(0, 8), std::string("\x93NUMPY\x01\x00", 8));
  const std::size_t length =
      static_cast<unsigned char>(bytes[8]) + 256u * static_cast<unsigned char>(bytes[9]);
  EXPECT_EQ((10 + length) % 64, 0u);
  const std::string header = bytes.substr(10, length);
  EXPECT_THAT(header, StartsWith("{'descr': '<f4', 'fortran_order': False, 'shape': ("));
  Npy npy;
  long rows = 0, columns = 0;
  EXPECT_EQ(std::sscanf(header.c_str() + header.find("'shape'"), "'shape': (%ld, %ld", &rows, &columns), 2);
  npy.shape = {rows, columns};
  npy.values.resize((bytes.size() - 10 - length) / sizeof(float));
  std::memcpy(npy.values.data(), bytes.data() + 10 + length, npy.values.size() * sizeof(float));
  return npy;
}

TEST_F(Colors, EvaluationMatchesTraining) {
  const std::filesystem::path json_file = workshop->path("evaluation.json");
  const ProcessResult run =
      workshop->run("convoy-evaluate", {"--checkpoint", checkpoint(), "--json", json_file.string()});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json result = workshop->result("run"), json = Json::parse(read_text(json_file));
  EXPECT_EQ(json["accuracy"], result["test_accuracy"]);
  // The batch size differs, and with it the order of sums: a few roundings of f32.
  EXPECT_NEAR(json["loss"].get<double>(), result["test_loss"].get<double>(),
              1e-5 * (1 + result["test_loss"].get<double>()));
  EXPECT_EQ(json["count"], 36);
  EXPECT_EQ(json["accuracy"], 1.0);
  EXPECT_EQ(json["confusion"], Json::parse("[[12, 0, 0], [0, 12, 0], [0, 0, 12]]"));
  EXPECT_EQ(json["classes"], Json::parse(R"(["blue", "green", "red"])"));
  EXPECT_THAT(run.out, HasSubstr("100.00%"));
}

TEST_F(Colors, EvaluationAcceptsOtherData) {
  const ProcessResult train =
      workshop->run("convoy-evaluate", {"--checkpoint", checkpoint(), "--split", "train"});
  EXPECT_THAT(train.out, HasSubstr("36 train images"));
  EXPECT_THAT(workshop->run("convoy-evaluate", {"--checkpoint", checkpoint(), "--device", "cuda:99"}),
              FailsWith(7, "cuda:99"));
  // The same colors with another image size and directory name.
  write_color_directories(workshop->path("larger"), 24, 5);
  const Arguments larger = {"--checkpoint", checkpoint(), "--dataset",
                            "folder",       "--data",     workshop->path("larger").string()};
  EXPECT_THAT(workshop->run("convoy-evaluate", larger),
              FailsWith(2, "[24, 24, 3] images, expected [16, 16, 3]"));
  EXPECT_THAT(workshop->run("convoy-evaluate", with(larger, {"--image-size", "16", "--batch-size", "4",
                                                             "--workers", "0", "--threads", "2"})),
              Prints(HasSubstr("15 test images")));
  EXPECT_THAT(workshop->run("convoy-evaluate", {"--checkpoint", checkpoint(), "--dataset", "shapes"}),
              FailsWith(2, "10 classes, expected 3"));
}

/// A terminal would obey the escape sequence in the name of a class.
TEST_F(Colors, NamesFromFilesAreShownWithoutEscapeSequences) {
  const std::filesystem::path data = workshop->path("escapes");
  write_color_directories(data, 16, 2);
  for (const char* split : {"train", "test"})
    std::filesystem::rename(data / split / "red", data / split / "r\x1b[31med");
  const ProcessResult train = workshop->run(
      "convoy-train", {"--model", "lenet", "--dataset", "folder", "--data", data.string(), "--batch-size",
                       "6", "--epochs", "1", "--out", workshop->path("escaped")});
  ASSERT_EQ(train.exit_code, 0) << train.err;
  const std::string run = workshop->path("escaped").string();
  const ProcessResult evaluate = workshop->run("convoy-evaluate", {"--checkpoint", run});
  EXPECT_THAT(evaluate.out, HasSubstr("r?[31med"));
  const ProcessResult predict =
      workshop->run("convoy-predict", {"--checkpoint", run, (data / "test").string()});
  EXPECT_THAT(predict.out, HasSubstr("%  r?[31med"));
  std::ofstream(data / "train" / "r\x1b[31med" / "broken.bmp") << "no image";
  const ProcessResult refused =
      workshop->run("convoy-train", {"--model", "lenet", "--dataset", "folder", "--data", data.string(),
                                     "--out", workshop->path("refused")});
  EXPECT_NE(refused.exit_code, 0);
  EXPECT_THAT(refused.err, HasSubstr("r?[31med/broken.bmp"));
  for (const ProcessResult* result : {&train, &evaluate, &predict, &refused})
    EXPECT_EQ((result->out + result->err).find('\x1b'), std::string::npos) << result->out << result->err;
}

TEST_F(Colors, PredictionNamesTheColor) {
  const TempDirectory images;
  const std::string red = images.write("a red one.bmp", solid_bmp(16, 16, 230, 20, 20)).string();
  images.write("more/green.bmp", solid_bmp(40, 30, 20, 230, 20));  // resized to 16x16
  images.write("more/notes.txt", "no image");
  const ProcessResult run =
      workshop->run("convoy-predict",
                    {"--checkpoint", checkpoint(), red, (images.path() / "more").string(), "-", "--top", "1"},
                    {.environment = {}, .directory = {}, .input = solid_bmp(16, 16, 20, 20, 230)});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  std::istringstream lines(run.out);
  std::vector<std::string> words;
  for (std::string line; std::getline(lines, line);) words.push_back(line);
  ASSERT_EQ(words.size(), 6u) << run.out;
  EXPECT_EQ(words[0], red);
  EXPECT_THAT(words[1], HasSubstr("%  red"));
  EXPECT_THAT(words[2], HasSubstr("green.bmp"));
  EXPECT_THAT(words[3], HasSubstr("%  green"));
  EXPECT_EQ(words[4], "standard input");
  EXPECT_THAT(words[5], HasSubstr("%  blue"));
  EXPECT_THAT(run.err, HasSubstr("warning: left out: files of other types: 1 (.txt 1)\n"));

  const ProcessResult all = workshop->run("convoy-predict", {"--checkpoint", checkpoint(), red});
  EXPECT_EQ(std::count(all.out.begin(), all.out.end(), '\n'), 4) << "one file name and three classes";
}

TEST_F(Colors, PredictionFindsTheFilesThatATrainingFinds) {
  const TempDirectory images;
  for (const char* name :
       {"usb/a.bmp", "usb/.ipynb_checkpoints/a.bmp", "usb/__MACOSX/a.bmp", "elsewhere/b.bmp"})
    images.write(name, solid_bmp(16, 16, 230, 20, 20));
  images.write("usb/._a.bmp", "Mac OS X");
  std::filesystem::create_symlink("/none.bmp", images.path() / "usb/gone.bmp");
  std::filesystem::create_directory_symlink(images.path() / "elsewhere", images.path() / "usb/linked");
  const std::string json = (images.path() / "p.json").string();
  const ProcessResult run = workshop->run(
      "convoy-predict", {"--checkpoint", checkpoint(), (images.path() / "usb").string(), "--json", json});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.err, AllOf(HasSubstr("warning: left out: dangling links: 1 ("),
                             HasSubstr("hidden files and directories: 3 (")));
  const Json predictions = Json::parse(read_text(json));
  ASSERT_EQ(predictions.size(), 2u);
  EXPECT_EQ(predictions[1]["path"], (images.path() / "usb/linked/b.bmp").string());
  std::filesystem::remove_all(images.path() / "usb/linked");
  std::filesystem::remove(images.path() / "usb/a.bmp");
  EXPECT_THAT(
      workshop->run("convoy-predict", {"--checkpoint", checkpoint(), (images.path() / "usb").string()}),
      FailsWith(3, "found no image in this directory"));
}

TEST_F(Colors, LogitsDoNotDependOnBatchSize) {
  const std::string images = (workshop->path("colors") / "test").string();
  const auto logits = [&](const char* batch) {
    const std::filesystem::path file = workshop->path(std::string("logits") + batch + ".npy");
    EXPECT_THAT(workshop->run("convoy-predict", {"--checkpoint", checkpoint(), images, "--batch-size", batch,
                                                 "--logits", file.string()}),
                Succeeds());
    return read_npy(file);
  };
  const Npy whole = logits("128"), parts = logits("5");
  ASSERT_EQ(whole.shape, (std::vector<std::int64_t>{36, 3}));
  ASSERT_EQ(parts.values.size(), whole.values.size());
  int correct = 0;
  for (std::size_t i = 0; i < whole.values.size(); ++i) {
    // GEMMs of other shapes may sum 400 f32 terms in another order.
    EXPECT_NEAR(parts.values[i], whole.values[i], 1e-4 * (1 + std::abs(whole.values[i])));
  }
  for (std::size_t row = 0; row < 36; ++row) {  // in the order of names: 12 blue, 12 green, 12 red
    const float* values = &whole.values[row * 3];
    if (static_cast<std::size_t>(std::max_element(values, values + 3) - values) == row / 12) ++correct;
  }
  EXPECT_EQ(correct, 36) << "evaluation found no errors";
}

/// Rows for Python to compare: of each image the path, and the class and probability of each prediction.
constexpr const char* kReadRecords = R"(
import csv, json, sys
records = json.load(open(sys.argv[1], encoding="utf-8"))
with open(sys.argv[2], encoding="utf-8", newline="") as file:
    rows = list(csv.DictReader(file, strict=True))
assert open(sys.argv[2], "rb").read().count(b"\r\n") == 1 + len(rows), "line ends"
assert len(rows) == len(records), rows
for row, record in zip(rows, records):
    assert list(record) == ["path", "model", "checkpoint", "predictions"], record
    assert (row["path"], row["model"], row["checkpoint"]) == (record["path"], record["model"], record["checkpoint"])
    assert len(row) == 3 + 2 * len(record["predictions"]), row
    for i, top in enumerate(record["predictions"], 1):
        assert row[f"class_{i}"] == top["class"], row
        assert float(row[f"probability_{i}"]) == top["probability"], row
print(json.dumps(records))
)";

TEST_F(Colors, RecordsAreValidForPython) {
  // Names that CSV and JSON must quote.
  const std::filesystem::path data = workshop->path("quoted");
  write_color_directories(data, 16, 4);
  const std::string odd = "re\"d, \xc3\xa9\nx";
  for (const char* split : {"train", "test"})
    std::filesystem::rename(data / split / "red", data / split / odd);
  const std::string run = workshop->path("quoted, run").string();
  ASSERT_THAT(
      workshop->run("convoy-train", {"--model", "lenet", "--dataset", "folder", "--data", data.string(),
                                     "--batch-size", "6", "--epochs", "1", "--out", run}),
      Succeeds());
  const TempDirectory images;
  const std::string file = images.write("a \"red\", one\n.bmp", solid_bmp(16, 16, 230, 20, 20)).string();
  const std::string json = workshop->path("records.json").string(),
                    csv = workshop->path("records.csv").string();
  const ProcessOptions blue{.environment = {}, .directory = {}, .input = solid_bmp(16, 16, 20, 20, 230)};
  const ProcessResult predict = workshop->run(
      "convoy-predict", {"--checkpoint", run, file, "-", "--top", "2", "--json", json, "--csv", csv}, blue);
  ASSERT_EQ(predict.exit_code, 0) << predict.err;
  EXPECT_THAT(predict.out, HasSubstr("standard input")) << "the text is printed as well";

  const std::string found = find_python("csv");
  if (found.empty()) GTEST_SKIP() << no_python("csv");
  const ProcessResult python = run_program({found, "-B", "-c", kReadRecords, json, csv});
  ASSERT_EQ(python.exit_code, 0) << python.err;
  const Json records = Json::parse(python.out);
  ASSERT_EQ(records.size(), 2U);
  EXPECT_EQ(records[0]["path"], file);
  EXPECT_EQ(records[1]["path"], "-");
  EXPECT_EQ(records[0]["model"], "lenet");
  EXPECT_THAT(records[0]["checkpoint"].get<std::string>(), StartsWith(run + "/checkpoints/step_"));
  std::set<std::string> names;
  for (const Json& record : records) {
    ASSERT_EQ(record["predictions"].size(), 2U);
    const double first = record["predictions"][0]["probability"],
                 second = record["predictions"][1]["probability"];
    EXPECT_GE(first, second);
    EXPECT_LE(first + second, 1 + 1e-6);  // of three; f32
    for (const Json& top : record["predictions"]) {
      names.insert(top["class"].get<std::string>());
      EXPECT_EQ(top["label"], top["class"] == "blue" ? 0 : top["class"] == "green" ? 1 : 2);
    }
  }
  EXPECT_THAT(names, ::testing::IsSubsetOf({"blue", "green", odd.c_str()}));
  EXPECT_THAT(read_text(csv), HasSubstr("\"\"red\"\", one\n.bmp\",lenet,\""))
      << "the path and the checkpoint";

  // On standard output, in place of the text.
  const Arguments to_stdout = {"--checkpoint", run, file, "-", "--top", "2"};
  for (const auto& [flag, expected] :
       {std::pair("--json", read_text(json)), std::pair("--csv", read_text(csv))}) {
    EXPECT_EQ(workshop->run("convoy-predict", with(to_stdout, {flag, "-"}), blue).out, expected);
  }
  const Arguments both = with(to_stdout, {"--json", "-", "--csv", "-"});
  EXPECT_THAT(workshop->run("convoy-predict", both, blue),
              FailsWith(2, "--json and --csv: found - for both"));
}

TEST_F(Colors, RecordsOfFailedPredictionsAreNotWritten) {
  const TempDirectory images;
  const std::string good = images.write("good.bmp", solid_bmp(16, 16, 9, 9, 9)).string();
  const std::string broken = images.write("broken.jpg", "no image").string();
  const std::filesystem::path json = images.path() / "records.json";
  EXPECT_THAT(workshop->run("convoy-predict", {"--checkpoint", checkpoint(), good, broken, "--batch-size",
                                               "1", "--json", json.string()}),
              FailsWith(3, "broken.jpg"));
  EXPECT_FALSE(std::filesystem::exists(json));
  for (const char* nothing : {"/", "/dev/null"}) {  // read() fails, and finds the end
    Process predict({"/bin/sh", "-c", R"(exec "$0" --checkpoint "$1" - <"$2")", program("convoy-predict"),
                     checkpoint(), nothing});
    EXPECT_THAT(predict.wait(std::chrono::seconds(60)), FailsWith(3, "standard input"));
  }
  for (const char* flag : {"--json", "--csv"}) {
    EXPECT_THAT(workshop->run("convoy-predict", {"--checkpoint", checkpoint(), good, flag, "/proc/records"}),
                FailsWith(8));
  }
}

TEST_F(Colors, EvaluationWritesTheLogitsOfThePredictions) {
  const std::filesystem::path evaluated = workshop->path("evaluated.npy"),
                              predicted = workshop->path("predicted.npy");
  ASSERT_THAT(workshop->run("convoy-predict",
                            {"--checkpoint", checkpoint(), (workshop->path("colors") / "test").string(),
                             "--logits", predicted.string()}),
              Succeeds());
  const Npy expected = read_npy(predicted);
  ASSERT_EQ(expected.shape, (std::vector<std::int64_t>{36, 3}));
  // 36 images in batches of 5, on one rank and on two.
  for (const char* ranks : {"1", "2"}) {
    ASSERT_THAT(
        workshop->run("convoy-evaluate", {"--checkpoint", checkpoint(), "--batch-size", "5", "--devices",
                                          ranks, "--device", "cpu", "--logits", evaluated.string()}),
        Succeeds());
    const Npy found = read_npy(evaluated);
    ASSERT_EQ(found.shape, expected.shape);
    for (std::size_t i = 0; i < found.values.size(); ++i)
      // GEMMs of other shapes may sum 400 f32 terms in another order.
      EXPECT_NEAR(found.values[i], expected.values[i], 1e-4 * (1 + std::abs(expected.values[i]))) << i;
  }
  EXPECT_THAT(
      workshop->run("convoy-evaluate", {"--checkpoint", checkpoint(), "--logits", "/proc/logits.npy"}),
      FailsWith(8));
}

TEST_F(Colors, NamesTheCheckpointThatAFileStandsFor) {
  const auto refusal = [](const std::filesystem::path& path) {
    const ProcessResult result = workshop->run("convoy-evaluate", {"--checkpoint", path.string()});
    EXPECT_EQ(result.exit_code, 5) << result.err;
    return result.err;
  };
  const std::filesystem::path copy = workshop->path("copy"), checkpoints = copy / "checkpoints";
  std::filesystem::copy(checkpoint(), copy, std::filesystem::copy_options::recursive);
  std::string name = read_text(checkpoints / "BEST");
  name.pop_back();  // the line break
  const std::filesystem::path best = checkpoints / name;
  for (const std::filesystem::path& file :
       {best / "model.safetensors", best / "manifest.json", checkpoints / "BEST", checkpoints / "LATEST"})
    EXPECT_THAT(refusal(file),
                HasSubstr(file.string() + ": a file, expected a checkpoint or run directory; did you mean " +
                          best.string() + "?"));
  EXPECT_THAT(refusal(copy / "config.toml"),
              HasSubstr("config.toml: a file, expected a checkpoint or run directory\n"));
  std::filesystem::remove_all(best);
  EXPECT_THAT(refusal(copy), HasSubstr(best.string() + ": no such directory, although BEST names it"));
}

TEST_F(Colors, PredictionRefusesInvalidFiles) {
  const TempDirectory images;
  const std::string empty = (images.path() / "empty").string(),
                    all = (workshop->path("colors") / "test").string();
  std::filesystem::create_directories(empty);
  for (const std::string& file : {std::string("absent.png"), empty})
    EXPECT_THAT(workshop->run("convoy-predict", {"--checkpoint", checkpoint(), file}), FailsWith(3)) << file;
  EXPECT_THAT(
      workshop->run("convoy-predict", {"--checkpoint", checkpoint(), all, "--logits", "/proc/logits.npy"}),
      FailsWith(8));
}

// The names are in Latin-1, as on disks of old systems.
TEST(NamesThatAreNotUtf8, AreReplacedInJsonAndCanBeOpened) {
  const Workshop workshop;
  const std::filesystem::path data = workshop.path("M\xfcller/data"), run = workshop.path("M\xfcller/run");
  write_color_directories(data);
  for (const char* part : {"train", "test"})
    std::filesystem::rename(data / part / "red", data / part / "r\xf6t");
  const auto train = [&](const Arguments& more) {
    return run_program(
        with({program("convoy-train"), "--epochs", "1", "--out", run.string(), "--threads", "1"}, more));
  };
  ASSERT_THAT(train({"--model", "lenet", "--dataset", "folder", "--data", data.string(), "--batch-size", "12",
                     "--trace"}),
              Succeeds());
  EXPECT_TRUE(std::filesystem::exists(run / "trace.json"));
  EXPECT_THAT(read_text(run / "config.toml"), HasSubstr("data = 'percent-encoded:/"));
  EXPECT_THAT(train({"--config", (run / "config.toml").string(), "--resume", "auto", "--epochs", "2"}),
              Prints(HasSubstr("resuming from")));
  const Json start = workshop.events(run.string(), "start").front();
  EXPECT_EQ(path_at(start["config"], "data"), data.string());

  const std::filesystem::path file = workshop.path("result.json");
  const auto result = [&](const std::string& name, const Arguments& more) {
    const ProcessResult ended =
        run_program(with({program(name), "--checkpoint", run.string(), "--json", file.string()}, more));
    EXPECT_THAT(ended, Succeeds());
    EXPECT_EQ(ended.err, "");
    return Json::parse(read_text(file));
  };
  const Json evaluation = result("convoy-evaluate", {"--threads", "1"});  // of the data that the run names
  EXPECT_THAT(evaluation["checkpoint"].get<std::string>(), HasSubstr("M\xEF\xBF\xBDller/run/checkpoints/"));
  EXPECT_THAT(path_at(evaluation, "checkpoint"), StartsWith(run.string()));
  EXPECT_THAT(evaluation["classes"], ::testing::ElementsAre("blue", "green", "r\xEF\xBF\xBDt"));
  const std::filesystem::path image = std::filesystem::directory_iterator(data / "test" / "r\xf6t")->path();
  const Json prediction = result("convoy-predict", {image.string()}).front();
  EXPECT_EQ(path_at(prediction, "path"), image.string());
  EXPECT_THAT(prediction["path_encoded"].get<std::string>(), HasSubstr("/M%FCller/data/test/r%F6t/"));
}

/// Returns an image of 32x32 gray pixels with noise, and a square of 10 pixels in one color at (top, left).
Picture with_square(int channel, int top, int left, std::uint64_t index) {
  const Random random{.seed = 5, .purpose = RandomPurpose::test};
  Picture picture = Picture::plain(32, 32, 3, 0);
  for (int y = 0; y < 32; ++y)
    for (int x = 0; x < 32; ++x)
      for (int c = 0; c < 3; ++c) {
        const bool inside = y >= top && y < top + 10 && x >= left && x < left + 10;
        const std::uint32_t noise = random.words(index, static_cast<std::uint32_t>(y * 32 + x))[0] % 60;
        picture.pixels[static_cast<std::size_t>((y * 32 + x) * 3 + c)] =
            static_cast<std::uint8_t>(!inside        ? 90 + noise
                                      : c == channel ? 250
                                                     : 20);
      }
  return picture;
}

/// Trains LeNet to name the color of a square that is anywhere in the image.
class Squares : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    workshop = new Workshop;
    const Random random{.seed = 6, .purpose = RandomPurpose::test};
    for (std::uint64_t i = 0; i < 300; ++i) {
      const int channel = static_cast<int>(i % 3);
      const auto place = random.words(i, 0);
      workshop->directory().write(
          fmt::format("squares/{}/{}/{}.png", i < 240 ? "train" : "test", kNames[channel], i),
          png(with_square(channel, static_cast<int>(place[0] % 23), static_cast<int>(place[1] % 23), i)));
    }
    ASSERT_THAT(workshop->run("convoy-train", {"--model",      "lenet",
                                               "--dataset",    "folder",
                                               "--data",       workshop->path("squares").string(),
                                               "--batch-size", "24",
                                               "--epochs",     "15",
                                               "--augment",    "none",
                                               "--eval-every", "0",
                                               "--out",        workshop->path("run").string(),
                                               "--threads",    "1",
                                               "--lr",         "0.03"}),
                Succeeds());
  }
  static void TearDownTestSuite() { delete workshop; }
  static ProcessResult explain(const Arguments& more) {
    return workshop->run("convoy-predict", with({"--checkpoint", workshop->path("run").string(), "--explain",
                                                 workshop->path("why.png").string()},
                                                more));
  }
  static constexpr const char* kNames[] = {"red", "green", "blue"};
  static Workshop* workshop;
};
Workshop* Squares::workshop = nullptr;

TEST_F(Squares, ExplainMarksTheCornerOfTheSquare) {
  constexpr int kCell = 224, kStride = 226,
                kRow = 238;  // as write_png_grid() draws images of 32 pixels and captions
  Arguments files;
  const std::pair<int, int> corners[] = {{1, 1}, {1, 21}, {21, 1}, {21, 21}};
  for (const auto& [top, left] : corners)
    files.push_back(
        workshop->directory()
            .write(fmt::format("corner-{}-{}.png", top, left), png(with_square(0, top, left, 1000)))
            .string());
  const ProcessResult run = explain(files);
  ASSERT_THAT(run, Prints(HasSubstr("by its layer conv2: ")));
  const Tensor picture = data::read_image(workshop->path("why.png"));
  ASSERT_EQ(picture.shape(), (Shape{4 * kRow, 2 * kStride, 3}));
  const auto pixels = picture.to_vector<std::uint8_t>();
  const auto at = [&](int y, int x, int c) {
    return static_cast<double>(pixels[static_cast<std::size_t>((y * 2 * kStride + x) * 3 + c)]) / 255;
  };
  for (int row = 0; row < 4; ++row) {
    // The right image is the mean of the left one and a color, which goes from blue over green to red.
    std::array<double, 4> heat{};
    for (int y = 0; y < kCell; ++y)
      for (int x = 0; x < kCell; ++x) {
        const int top = row * kRow + y;
        const double red = 2 * at(top, kStride + x, 0) - at(top, x, 0);
        ASSERT_GT(red, -0.02);
        heat[static_cast<std::size_t>(2 * (y / (kCell / 2)) + x / (kCell / 2))] += red;
      }
    const double total = heat[0] + heat[1] + heat[2] + heat[3];
    EXPECT_GT(heat[static_cast<std::size_t>(row)], 0.6 * total) << "corner " << row << " of " << total;
    int dark = 0;  // of the captions, which are black on white
    for (int y = kCell; y < kRow - 2; ++y)
      for (int x = 0; x < 2 * kStride; ++x) dark += at(row * kRow + y, x, 0) < 0.5;
    EXPECT_GT(dark, 150) << "the name of the file, a class and its probability";
  }
}

TEST_F(Squares, ExplainLeavesPredictionsAsTheyAre) {
  const std::string test = workshop->path("squares/test/red").string();
  const Arguments arguments = {"--checkpoint", workshop->path("run").string(), "--batch-size", "7", test};
  const ProcessResult plain = workshop->run("convoy-predict", arguments),
                      explained = explain({"--batch-size", "7", test});
  ASSERT_THAT(plain, Succeeds());
  EXPECT_EQ(explained.out.substr(0, plain.out.size()), plain.out);
  EXPECT_EQ(data::read_image(workshop->path("why.png")).size(0), 20 * 238) << "a row for each image";
  EXPECT_THAT(explain({workshop->path("squares/train").string()}),
              FailsWith(2, "--explain: found 240 images, expected at most 100"));
}

TEST(Digits, OneChannelModelAcceptsColorFiles) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run", {"--epochs", "1"}).exit_code, 0);
  const TempDirectory images;
  const std::string file = images.write("grey.bmp", solid_bmp(28, 28, 90, 90, 90)).string();
  const ProcessResult run =
      workshop.run("convoy-predict", {"--checkpoint", workshop.path("run").string(), file});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(std::count(run.out.begin(), run.out.end(), '\n'), 6) << "one file name and five classes";
  // A checkpoint directory works as well as the run directory.
  const std::string step = checkpoints_of(workshop.path("run")).back().string();
  EXPECT_EQ(workshop.run("convoy-predict", {"--checkpoint", step, file}).out, run.out);
}

TEST(Digits, EvaluationFindsTheTrainingData) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("run").exit_code, 0);
  const ProcessResult run = workshop.run("convoy-evaluate", {"--checkpoint", workshop.path("run").string()});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, HasSubstr("100 test images"));
  std::filesystem::remove(checkpoints_of(workshop.path("run")).back() / "optimizer.safetensors");
  EXPECT_THAT(
      workshop.run("convoy-evaluate", {"--checkpoint", checkpoints_of(workshop.path("run")).back().string()}),
      FailsWith(5));
}

}  // namespace
}  // namespace convoy::testing
