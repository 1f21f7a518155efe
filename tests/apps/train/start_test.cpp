// What a run says at its start, and what config.toml tells of it: values that depend on the images, and the data
// that were left out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>

#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/io/safetensors.h"
#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

namespace fs = std::filesystem;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// Trains on directories of images. `more` is appended to the flags.
ProcessResult train_on(const Workshop& workshop, const std::string& data, const std::string& out,
                       const Arguments& more) {
  return workshop.run("convoy-train", with({"--dataset", "folder", "--data", workshop.path(data).string(),
                                            "--out", workshop.path(out), "--threads", "1", "--device", "cpu"},
                                           more));
}

TEST(Stem, DependsOnTheImageSizeAndIsSaid) {
  const Workshop workshop;
  write_color_directories(workshop.path("colors"), 16, 2);
  const auto stem = [&](const char* size) {
    return train_on(workshop, "colors", "unused",
                    {"--model", "resnet18", "--image-size", size, "--batch-size", "2", "--dry-run"})
        .out;
  };
  EXPECT_THAT(stem("64"), HasSubstr("resnet18 with the cifar stem, "));
  EXPECT_THAT(stem("65"), HasSubstr("resnet18 with the imagenet stem, "));
}

TEST(Stem, IsStoredResolvedAndTakenFromCheckpoints) {
  const Workshop workshop;
  write_color_directories(workshop.path("colors"), 16, 2);
  const Arguments flags = {"--model",      "resnet18", "--image-size", "66",
                           "--batch-size", "2",        "--eval-every", "0"};
  const auto train = [&](const std::string& out, const Arguments& more) {
    return train_on(workshop, "colors", out, with(flags, more));
  };
  ASSERT_EQ(train("new", {"--max-steps", "1"}).exit_code, 0);
  EXPECT_THAT(read_text(workshop.path("new") / "config.toml"), HasSubstr("stem = 'imagenet'\n"));

  ASSERT_EQ(train("old", {"--max-steps", "1", "--stem", "cifar"}).exit_code, 0);
  EXPECT_THAT(workshop.run("convoy-evaluate", {"--checkpoint", workshop.path("old").string()}), Succeeds());
  EXPECT_THAT(train("old", {"--max-steps", "2", "--resume", "auto"}),
              Prints(HasSubstr("resnet18 with the cifar stem, ")));
  EXPECT_THAT(read_text(workshop.path("old") / "config.toml"), HasSubstr("stem = 'cifar'\n"));
}

class Repeat : public ::testing::Test {
 protected:
  /// Trains two epochs on few images, so that the accuracies of the seeds differ.
  ProcessResult train(const std::string& out, const Arguments& more) const {
    return workshop.train(out, with({"--log-every", "20", "--max-steps", "14"}, more));
  }
  Json summary(const std::string& out) const {
    return Json::parse(read_text(workshop.path(out) / "repeat.json"));
  }
  const Workshop workshop;
};

TEST_F(Repeat, TrainsEachSeedAsATrainingOfItsOwn) {
  for (const char* ranks : {"1", "2"}) {
    const std::string out = std::string("all") + ranks, one = std::string("one") + ranks;
    const ProcessResult all = train(out, {"--repeat", "3", "--seed", "5", "--devices", ranks});
    ASSERT_EQ(all.exit_code, 0) << all.err;
    EXPECT_THAT(all.out, HasSubstr("training 2 of 3, --seed 6\n"));
    ASSERT_EQ(train(one, {"--seed", "6", "--devices", ranks}).exit_code, 0);
    EXPECT_EQ(workshop.result(out + "/seed-6")["parameters_hash"], workshop.result(one)["parameters_hash"]);
    EXPECT_THAT(read_text(workshop.path(out) / "seed-6/config.toml"), Not(HasSubstr("repeat")));

    const Json repeat = summary(out);
    double sum = 0, squares = 0;
    for (int i = 0; i < 3; ++i) {
      const std::string run = "seed-" + std::to_string(5 + i);
      const double accuracy = workshop.result(out + "/" + run)["test_accuracy"].get<double>();
      EXPECT_EQ(repeat["runs"][i], (Json{{"seed", 5 + i}, {"directory", run}}));
      EXPECT_EQ(repeat["test_accuracy"]["values"][i], accuracy);
      sum += accuracy;
      squares += accuracy * accuracy;
    }
    const double mean = sum / 3, deviation = std::sqrt((squares - sum * sum / 3) / 2);
    EXPECT_GT(deviation, 0.005) << "the seeds must differ for this test";
    EXPECT_NEAR(repeat["test_accuracy"]["mean"].get<double>(), mean, 1e-12);
    EXPECT_NEAR(repeat["test_accuracy"]["standard_deviation"].get<double>(), deviation, 1e-12);
    EXPECT_NEAR(repeat["test_accuracy"]["standard_error"].get<double>(), deviation / std::sqrt(3), 1e-12);
    EXPECT_THAT(all.out, HasSubstr(fmt::format(
                             "\ntest accuracy {:.2f}% ± {:.2f}% (mean ± standard error of 3 trainings; ",
                             mean * 100, deviation / std::sqrt(3) * 100)));
  }
}

TEST_F(Repeat, ResumingKeepsCompleteTrainingsAndAddsOthers) {
  ASSERT_EQ(train("run", {"--repeat", "2"}).exit_code, 0);
  const std::string log = read_text(workshop.path("run") / "seed-2/log.jsonl");
  EXPECT_THAT(train("run", {"--repeat", "2"}), FailsWith(2, "seed-1: contains a run already"));
  fs::remove_all(workshop.path("run") / "seed-1");
  EXPECT_THAT(train("run", {"--repeat", "2"}), FailsWith(2, "seed-2: contains a run already"));
  EXPECT_FALSE(fs::exists(workshop.path("run") / "seed-1")) << "refused before the first training";

  ASSERT_THAT(train("run", {"--repeat", "3", "--resume", "auto"}),
              Prints(HasSubstr("training 2 of 3, --seed 2\n")));
  EXPECT_EQ(read_text(workshop.path("run") / "seed-2/log.jsonl"), log);
  EXPECT_EQ(summary("run")["test_accuracy"]["values"].size(), 3U);
  EXPECT_THAT(train("run", {"--repeat", "3", "--resume", "auto", "--momentum", "0.5"}), FailsWith(5))
      << "another training";
}

TEST_F(Repeat, RefusesWhatDoesNotFit) {
  ASSERT_EQ(train("run", {}).exit_code, 0);
  const auto refusal = [&](const Arguments& more) {
    const ProcessResult run = train("run", with({"--repeat", "2"}, more));
    EXPECT_EQ(run.exit_code, 2) << run.err;
    return run.err;
  };
  EXPECT_THAT(refusal({}), HasSubstr("run contains a single training; use another directory"));
  EXPECT_THAT(refusal({"--resume", workshop.path("run")}), HasSubstr("found --repeat 2, expected auto"));
  EXPECT_THAT(refusal({"--trace", "trace.json"}), HasSubstr("--trace: found --repeat 2"));
  EXPECT_THAT(refusal({"--dry-run"}), HasSubstr("--dry-run: found --repeat 2"));
  EXPECT_THAT(refusal({"--seed", "9223372036854775807"}),
              HasSubstr("--seed 9223372036854775807: found --repeat 2"));
}

TEST(ImageDirectories, OfMixedSizesAreResizedWithAWarning) {
  const Workshop workshop;
  for (const char* name : {"blue", "red"})
    for (int i = 0; i < 4; ++i) {
      const fs::path place = workshop.path("mixed") / name;
      fs::create_directories(place);
      std::ofstream(place / (std::to_string(i) + ".bmp"), std::ios::binary)
          << solid_bmp(16 + i, 20, 9, 9, 200);
    }
  std::ofstream(workshop.path("mixed") / "red" / "5.gif") << "GIF89a";
  const Arguments flags = {"--model", "lenet", "--batch-size", "4", "--max-steps", "1"};
  const ProcessResult run = train_on(workshop, "mixed", "run", flags);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out,
              HasSubstr("warning: the sizes of the images differ (8 of 8 images scaled and cropped to "
                        "224 x 224 pixels); image_size sets another size"));
  EXPECT_THAT(run.out,
              HasSubstr("warning: lenet is a network for images of about 32 pixels, found 224 x 224; use "
                        "--model resnet18, or --image-size 32\n"));
  EXPECT_THAT(run.out, HasSubstr("warning: left out: files of other types: 1 (.gif 1)"));
  EXPECT_THAT(run.out, HasSubstr("(20% of each class for testing, drawn with seed 1): "));
  EXPECT_THAT(read_text(workshop.path("run") / "config.toml"), HasSubstr("image-size = 224\n"));
  EXPECT_THAT(workshop.run("convoy-evaluate", {"--checkpoint", workshop.path("run").string()}), Succeeds());
  Arguments resume = flags;
  resume.back() = "2";
  resume.insert(resume.end(), {"--resume", "auto"});
  EXPECT_THAT(train_on(workshop, "mixed", "run", resume), Succeeds());
}

TEST(ImageDirectories, OfOneClassAreRefused) {
  const Workshop workshop;
  write_color_directories(workshop.path("nested/photos"), 16, 2);
  fs::rename(workshop.path("nested/photos/train"), workshop.path("flat"));
  fs::remove_all(workshop.path("nested/photos"));
  fs::rename(workshop.path("flat"), workshop.path("nested/photos"));
  const auto refusal = [&](const std::string& data) {
    const ProcessResult run = workshop.run(
        "convoy-train",
        {"--model", "lenet", "--dataset", "folder", "--data", data, "--out", workshop.path("run")},
        {.environment = {}, .directory = workshop.path("nested").parent_path().string(), .input = {}});
    EXPECT_EQ(run.exit_code, 3) << run.out;
    return error_line(run);
  };
  EXPECT_THAT(refusal("nested"),
              HasSubstr("nested: 1 class (photos), which itself has directories blue, green, red; "
                        "did you mean --data nested/photos?"));
  for (const char* name : {"blue", "green"}) fs::remove_all(workshop.path("nested/photos") / name);
  EXPECT_THAT(refusal("nested/photos"),
              HasSubstr("photos: 1 class (red), with which a network learns nothing"));
  EXPECT_FALSE(fs::exists(workshop.path("run")));
}

TEST(ClassWeights, AreBalancedOrThoseOfAFile) {
  const Workshop workshop;
  write_color_directories(workshop.path("colors"), 16, 8);
  for (int i = 102; i < 108; ++i)
    fs::remove(workshop.path("colors/train/green") / fmt::format("image{}.bmp", i));
  const auto train = [&](const std::string& out, const std::string& weights) {
    return train_on(
        workshop, "colors", out,
        {"--model", "lenet", "--batch-size", "6", "--max-steps", "6", "--class-weights", weights});
  };
  const auto hash = [&](const std::string& out, const std::string& weights) {
    EXPECT_THAT(train(out, weights), Succeeds());
    return workshop.result(out)["parameters_hash"];
  };
  const auto file = [&](const std::string& text) {
    std::ofstream(workshop.path("weights.txt")) << text;
    return workshop.path("weights.txt").string();
  };
  const Json none = hash("none", "none"), balanced = hash("balanced", "balanced");
  hash("same", file("# all the same\n2 blue\n2 green\n\n2 red\n"));
  const std::vector<double> losses = workshop.numbers("same", "step", "loss"),
                            plain = workshop.numbers("none", "step", "loss");
  EXPECT_GE(losses.size(), 4U);
  EXPECT_THAT(losses, ::testing::Pointwise(::testing::DoubleNear(1e-5), plain)) << "the mean is scaled to 1";
  EXPECT_NE(balanced, none);
  EXPECT_EQ(hash("by-hand", file("1 red\n1 blue\n4 green\n")), balanced) << "8, 8 and 2 images";
  const Arguments resume = {"--model",     "lenet", "--batch-size",    "6",
                            "--max-steps", "7",     "--class-weights", file("1 red\n1 blue\n3 green\n"),
                            "--resume",    "auto"};
  EXPECT_THAT(
      train_on(workshop, "colors", "by-hand", resume),
      FailsWith(5, "trained with the class weights 1 blue, 4 green, 1 red, found 1 blue, 3 green, 1 red"));
  EXPECT_NE(hash("no-green", file("1 red\n1 blue\n0 green\n")), none);

  const auto refusal = [&](const std::string& text) { return train("refused", file(text)); };
  EXPECT_THAT(refusal("1 red\n1 blue\n"),
              FailsWith(2, "missing classes: green; unknown classes: none; expected one line"));
  EXPECT_THAT(refusal("1 red\n1 blue\n1 green\n1 grey\n"),
              FailsWith(2, "missing classes: none; unknown classes: grey"));
  EXPECT_THAT(refusal("1 red\nblue 1\n"),
              FailsWith(2, "line 2: found 'blue 1', expected the weight (0 or more), a blank"));
  EXPECT_THAT(refusal("1 red\n-1 blue\n"), FailsWith(2, "line 2: found '-1 blue'"));
  EXPECT_THAT(refusal("1 red\n2 red\n"), FailsWith(2, "a class that no other line has"));
  EXPECT_THAT(refusal("0 red\n0 blue\n0 green\n"), FailsWith(2, "all training images have the weight 0"));
  EXPECT_THAT(train("refused", "balnced"),
              FailsWith(2, "--class-weights: found 'balnced', expected none, balanced, or a file"));
  EXPECT_FALSE(fs::exists(workshop.path("refused")));
}

TEST(ImageDirectories, AreCroppedAndRotatedFromTheirFiles) {
  const Workshop workshop;
  write_color_directories(workshop.path("colors"), 40, 8);
  const Arguments flags = {"--model",      "lenet",
                           "--image-size", "16",
                           "--batch-size", "12",
                           "--epochs",     "3",
                           "--augment",    "original-crop=30,rotation=20,flip"};
  const auto train = [&](const std::string& out, const Arguments& more) {
    const ProcessResult run = train_on(workshop, "colors", out, with(flags, more));
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_THAT(run.out,
                HasSubstr("crop of the original image from 30%, rotation within 20 degrees, flip, "));
    return workshop.result(out)["parameters_hash"];
  };
  const Json hash = train("one", {"--workers", "0"});
  EXPECT_EQ(train("workers", {"--workers", "3"}), hash);
  const Arguments constant = {"--schedule", "constant"};
  const Json whole = train("whole", constant);
  train("run", with(constant, {"--max-steps", "4"}));
  EXPECT_EQ(train("run", with(constant, {"--resume", "auto", "--max-steps", "0"})), whole);

  EXPECT_THAT(workshop.train("refused", {"--augment", "rotation"}),
              FailsWith(2,
                        "--augment rotation: found --dataset mnist, whose images have no files, expected a "
                        "directory of images"));
  EXPECT_THAT(train_on(workshop, "colors", "refused", with(flags, {"--data-on-device"})),
              FailsWith(2, "the CPU decodes the original images"));
}

TEST(ImageDirectories, OfManyClassesAreCountedTenByTen) {
  const Workshop workshop;
  write_color_directories(workshop.path("many"), 16, 3);
  for (const char* split : {"train", "test"})
    for (int c = 0; c < 9; ++c)
      fs::copy(workshop.path("many") / split / "red", workshop.path("many") / split / fmt::format("a{}", c));
  fs::remove(workshop.path("many/train/a1/image100.bmp"));
  const ProcessResult run = train_on(workshop, "many", "run", {"--model", "lenet", "--max-steps", "1"});
  EXPECT_THAT(run,
              Prints(HasSubstr("  classes    a0 3, a1 2, a2 3, a3 3, a4 3, a5 3, a6 3, a7 3, a8 3, blue 3 "
                               "and 2 more\n")));
  const Json start = workshop.events("run", "start")[0];
  EXPECT_EQ(start["class_images"], (Json{3, 2, 3, 3, 3, 3, 3, 3, 3, 3, 3, 3}));
  EXPECT_EQ(start["classes"][11], "red");
}

TEST(ImageDirectories, OfValidationImagesDecideDuringTheTraining) {
  const Workshop workshop;
  write_color_directories(workshop.path("three"), 16, 4);
  fs::copy(workshop.path("three/test"), workshop.path("three/val"), fs::copy_options::recursive);
  fs::remove(workshop.path("three/val/red/image100.bmp"));
  const Arguments flags = {"--model",  "lenet", "--batch-size", "4", "--max-steps", "3",
                           "--epochs", "0",     "--lr",         "0"};
  const ProcessResult run = train_on(workshop, "three", "run", flags);
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out,
              AllOf(HasSubstr("12 training, 11 validation and 12 test images"), Not(HasSubstr("warning"))));
  EXPECT_THAT(run.out, HasSubstr("  classes    blue 4, green 4, red 4\n"));
  EXPECT_EQ(workshop.events("run", "eval")[0]["split"], "validation");
  const Json mistakes = Json::parse(read_text(workshop.path("run") / "evaluation.json"))["mistakes"];
  ASSERT_GE(mistakes.size(), 1u) << "a network that was not trained";
  for (const Json& mistake : mistakes) {
    const std::string file = mistake["file"];
    EXPECT_THAT(file, ::testing::StartsWith("val/"));
    EXPECT_TRUE(fs::exists(workshop.path("three") / file)) << file;
  }
  EXPECT_EQ(workshop.evaluated(workshop.path("run").string(), {"--split", "validation"})["count"], 11);
  const ProcessResult held_out = train_on(workshop, "three", "held-out", with(flags, {"--validation", "3"}));
  EXPECT_THAT(held_out.out, AllOf(HasSubstr("9 training, 3 validation and 12 test images"),
                                  HasSubstr("warning: left out: other directories: 1 ("),
                                  HasSubstr("val with 11 images)")));
}

// Layer 4 of a ResNet-18 with the imagenet stem has one pixel for digits of 28 x 28.
TEST(Batch, ThatLeavesABatchNormOneValueIsRefused) {
  const Workshop workshop;
  const auto train = [&](const Arguments& more) {
    return workshop.train("run", with({"--model", "resnet18", "--stem", "imagenet", "--dry-run"}, more));
  };
  const std::vector<Arguments> all_refused = {{"--batch-size", "29"},
                                              {"--batch-size", "106", "--devices", "2"},
                                              {"--batch-size", "29", "--devices", "2", "--sync-bn"},
                                              {"--batch-size", "32", "--micro-batch-size", "1"}};
  for (const Arguments& refused : all_refused) {
    const ProcessResult run = train(refused);
    EXPECT_EQ(run.exit_code, 2) << run.out;
    EXPECT_THAT(run.err,
                AllOf(HasSubstr("layer4.0.bn1 (BatchNorm2d 512"), HasSubstr("one value per channel")));
    EXPECT_THAT(run.err, HasSubstr("--batch-size " + refused[1] + ": the "));
  }
  EXPECT_THAT(train({"--batch-size", "29"}).err,
              HasSubstr("the last batch of an epoch of 320 images has 1 image, which leaves"));
  const std::vector<Arguments> all_accepted = {{"--batch-size", "32"},
                                               {"--batch-size", "29", "--max-steps", "11"},
                                               {"--batch-size", "106", "--devices", "2", "--sync-bn"}};
  for (const Arguments& accepted : all_accepted) EXPECT_THAT(train(accepted), Succeeds());
  EXPECT_THAT(workshop.train("run", {"--batch-size", "29", "--dry-run"}), Succeeds()) << "no batch norm";
}

TEST(ImageDirectories, HaveDefaultsForPhotographs) {
  const Workshop workshop;
  write_color_directories(workshop.path("colors"), 80, 2);
  const auto output = [&](const Arguments& more) {
    return workshop.run("convoy-train", with({"--dataset", "folder", "--data", workshop.path("colors"),
                                              "--threads", "1", "--device", "cpu"},
                                             more));
  };
  const ProcessResult flags = output({"--print-config"});
  for (const char* line : {"model = 'resnet18'\n", "image-size = 128\n", "batch-size = 32\n", "lr = 0.0125\n",
                           "out = 'runs/resnet18-colors'\n"})
    EXPECT_THAT(flags.out, HasSubstr(line)) << flags.err;
  EXPECT_THAT(
      output({"--dry-run", "--batch-size", "8"}),
      Prints(AllOf(HasSubstr("resnet18 with the imagenet stem, "), HasSubstr(" of [128, 128, 3], 3 classes"),
                   HasSubstr("cosine with peak 0.003125, "), Not(HasSubstr("warning: resnet18")))));
  EXPECT_THAT(output({"--print-config", "--model", "lenet"}).out,
              AllOf(HasSubstr("image-size = 0\n"), HasSubstr("out = 'runs/lenet-colors'\n")));
}

TEST(Batch, LargerThanTheDataSetIsWarnedOf) {
  const Workshop workshop;
  const std::string warning =
      "warning: --batch-size 400 is more than the 320 training images, so each step is an epoch";
  const ProcessResult large = workshop.train("large", {"--batch-size", "400", "--max-steps", "1"});
  EXPECT_THAT(large.out, HasSubstr(warning));
  EXPECT_THAT(large.out, HasSubstr("cpu, 1 thread, 1 loader worker\n"));
  EXPECT_THAT(large.out, HasSubstr(", 1 step, 10% warmup\n"));
  const ProcessResult whole = workshop.train("whole", {"--batch-size", "320", "--max-steps", "1"});
  EXPECT_THAT(whole.out, Not(HasSubstr("warning")));
}

TEST(Quiet, LeavesOutTheTableAndTheProgress) {
  const Workshop workshop;
  const ProcessResult run = workshop.train("run", {"--quiet", "--batch-size", "400", "--max-steps", "2"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_THAT(run.out, ::testing::StartsWith("warning: --batch-size 400"));
  EXPECT_THAT(run.out, HasSubstr("test accuracy"));
  EXPECT_THAT(run.out, AllOf(Not(HasSubstr("optimizer")), Not(HasSubstr("step 1/2")),
                             Not(HasSubstr("evaluation at"))));
  EXPECT_EQ(workshop.events("run", "step").size(), 2u) << "the log has all of it";
}

TEST(Result, NamesOtherProgramsAsAShellFindsThem) {
  const Workshop workshop;
  const fs::path programs = fs::path(program("convoy-train")).parent_path();
  const auto train = [&](const std::string& out, const std::string& path) {
    const ProcessResult run =
        run_program({program("convoy-train"), "--model", "lenet", "--dataset", "shapes", "--max-steps", "1",
                     "--device", "cpu", "--out", workshop.path(out).string()},
                    {.environment = {{"PATH", path}}});
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  };
  EXPECT_THAT(train("on-the-path", "/usr/bin:" + programs.string()),
              HasSubstr("predict with   convoy-predict --ch"));
  EXPECT_THAT(train("elsewhere", "/usr/bin"), HasSubstr("bin/convoy-predict --checkpoint "));
}

// The program runs in a pseudo terminal of 80 columns, which the program script opens.
TEST(ProgressLine, OfATrainingFitsIntoTheTerminal) {
  const Workshop workshop;
  const std::string train = fmt::format(
      "stty rows 24 cols 80; exec {} --model lenet --dataset shapes --batch-size 32 --max-steps 300 "
      "--device cpu --threads 1 --out {}",
      program("convoy-train"), workshop.path("run").string());
  const ProcessResult run =
      run_program({"/usr/bin/script", "--quiet", "--return", "--command", train, "/dev/null"});
  ASSERT_EQ(run.exit_code, 0) << run.out << run.err;
  std::string last;
  std::istringstream output(run.out);
  for (std::string frame; std::getline(output, frame, '\r');) {
    const std::size_t end = frame.find("\x1b[K");  // follows a drawn line
    if (end == std::string::npos || frame.find("step ") > end) continue;
    frame.resize(end);
    EXPECT_LT(frame.size(), 80u) << frame;
    if (frame.find("loss ") == std::string::npos) continue;  // before the first measurement
    EXPECT_THAT(frame, HasSubstr("images/s"));
    last = frame;
  }
  EXPECT_THAT(last, HasSubstr("left ")) << run.out;
}

TEST(InitFrom, IsSaidAndNotReadByAResumedRun) {
  const Workshop workshop;
  ASSERT_EQ(workshop.train("base", {"--max-steps", "1"}).exit_code, 0);
  const fs::path weights = workshop.path("weights.safetensors");
  fs::copy_file(checkpoints_of(workshop.path("base")).back() / "model.safetensors", weights);
  const Arguments flags = {"--init-from", weights.string(), "--resume", "auto"};
  const auto train = [&](const char* steps) {
    return workshop.train("tuned", with(flags, {"--max-steps", steps}));
  };
  ASSERT_THAT(train("2"), Prints(HasSubstr("init-from  initial parameters of " + weights.string())));
  fs::remove(weights);
  EXPECT_THAT(train("4"), Prints(AllOf(HasSubstr("resuming from"), Not(HasSubstr("init-from")))));
  EXPECT_EQ(workshop.result("tuned")["steps"], 4);
}

}  // namespace
}  // namespace convoy::testing
