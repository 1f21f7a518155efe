// Trainings on a GPU by convoy-train: CUDA graphs, precisions, overflow, errors, the algorithm cache and
// convolutions that cuDNN cannot run.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "convoy/kernels/runtime/device_context.h"
#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr int kUsageError = 2, kNumericError = 6, kDeviceError = 7;

bool is_emulated() { return std::getenv("CONVOY_EMULATED_GPUS") != nullptr; }

class CudaTraining : public ::testing::Test {
 protected:
  using Environment = std::map<std::string, std::string>;

  void SetUp() override {
    if (cuda_availability().count == 0) GTEST_SKIP() << "needs a GPU: " << cuda_availability().reason;
  }

  /// Trains LeNet on a GPU for five steps of eight images without an algorithm cache, unless `more` contains
  /// other values.
  ProcessResult train(const std::string& out, const Arguments& more,
                      const Environment& environment = {}) const {
    Arguments arguments;
    for (const auto& [flag, value] : {std::pair("--device", "cuda"), std::pair("--plan-cache", "none"),
                                      std::pair("--max-steps", "5"), std::pair("--batch-size", "8")})
      if (std::find(more.begin(), more.end(), flag) == more.end())
        arguments.insert(arguments.end(), {flag, value});
    arguments.insert(arguments.end(), more.begin(), more.end());
    ProcessOptions options{.environment = {{"CONVOY_EMULATED_GPUS", "1"}}};
    options.environment.insert(environment.begin(), environment.end());
    return run_program(workshop.train_arguments(out, arguments), options);
  }

  /// Trains, expects success, and returns the result event.
  Json trained(const std::string& out, const Arguments& more, const Environment& environment = {}) const {
    const ProcessResult run = train(out, more, environment);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.exit_code == 0 ? workshop.result(out) : Json{};
  }

  /// Returns the losses of the steps, then the training accuracies of the epochs.
  std::vector<double> losses(const std::string& out) const {
    std::vector<double> all;
    for (const auto& [event, field] : {std::pair("step", "loss"), std::pair("epoch", "accuracy")})
      for (const Json& each : workshop.events(out, event)) all.push_back(each[field].get<double>());
    return all;
  }
  std::vector<std::string> warnings(const std::string& out) const {
    std::vector<std::string> all;
    for (const Json& warning : workshop.events(out, "warning")) all.push_back(warning["message"]);
    return all;
  }

  const Workshop workshop;
};

// ---- CUDA graphs ----

TEST_F(CudaTraining, ReplayedStepsMatchEagerSteps) {
  // 20 images in batches of 8 end in a batch of 4: two shapes of step, each captured at its second occurrence.
  const std::vector<Arguments> all = {{"--no-data-on-device", "--overfit-batch"},
                                      {"--data-on-device", "--micro-batch-size=3"}};
  for (const Arguments& more : all) {
    const Arguments both = with(more, {"--max-steps=9", "--deterministic"});
    Arguments eager = both;
    eager.push_back("--no-cuda-graph");
    const std::string name = more[0];
    const Json replayed = trained("graph" + name, both);
    EXPECT_EQ(replayed["parameters_hash"], trained("eager" + name, eager)["parameters_hash"]) << name;
    EXPECT_EQ(losses("graph" + name), losses("eager" + name)) << name;
    EXPECT_TRUE(warnings("graph" + name).empty()) << warnings("graph" + name).front();
  }
}

// The schedule, Adam's step count, averages of weights; a second capture once parameters are frozen.
TEST_F(CudaTraining, ReplayedStepsFollowTheState) {
  const std::vector<Arguments> all = {{"--optimizer=adamw", "--clip-norm=0.5"},
                                      {"--ema=0.9", "--freeze=conv1=0.4", "--precision=bf16"},
                                      {"--ema=0.5", "--optimizer=muon"}};
  for (const Arguments& more : all) {
    Arguments flags = with(more, {"--max-steps", "9", "--deterministic"});
    const Json replayed = trained("graph" + more[0], flags);
    flags.push_back("--no-cuda-graph");
    EXPECT_EQ(replayed["parameters_hash"], trained("eager" + more[0], flags)["parameters_hash"]) << more[0];
  }
}

TEST_F(CudaTraining, ResultIsIndependentOfStreamOrder) {
  if (!is_emulated()) GTEST_SKIP() << "needs an emulated GPU";
  const Json eager = trained("eager", {"--deterministic"});
  for (const char* seed : {"1", "2"})
    for (const char* data : {"--data-on-device", "--no-data-on-device"}) {
      const std::string name = std::string("random") + seed + data;
      const Json random = trained(name, {"--deterministic", data},
                                  {{"CONVOY_EMULATOR_STREAMS", "random"}, {"CONVOY_EMULATOR_SEED", seed}});
      EXPECT_EQ(random["parameters_hash"], eager["parameters_hash"]) << name;
      EXPECT_EQ(losses(name), losses("eager")) << name;
    }
}

TEST_F(CudaTraining, ResumedTrainingMatchesAnUninterruptedOne) {
  for (const char* precision : {"fp32", "fp16"}) {
    const std::string name = precision;
    const Arguments flags = {"--deterministic", "--precision",  precision,
                             "--optimizer",     "adamw",        "--schedule",
                             "constant",        "--save-every", "3"};
    const auto with_steps = [&](const char* steps, bool resume) {
      Arguments all = with(flags, {"--max-steps", steps});
      if (resume) all.insert(all.end(), {"--resume", "auto"});
      return all;
    };
    const Json whole = trained("whole" + name, with_steps("7", false));
    trained("parts" + name, with_steps("3", false));
    const Json parts = trained("parts" + name, with_steps("7", true));
    EXPECT_EQ(parts["parameters_hash"], whole["parameters_hash"]) << name;
    EXPECT_EQ(losses("parts" + name), losses("whole" + name)) << name;
  }
}

TEST_F(CudaTraining, TraceShowsGpuPhases) {
  const std::string trace = workshop.path("trace.json").string();
  trained("run", {"--trace", trace});
  const Json events = Json::parse(read_text(trace))["traceEvents"];
  for (const char* name : {"forward", "backward", "optimizer"}) {
    const auto count = std::count_if(events.begin(), events.end(), [&](const Json& event) {
      return event["name"] == name && event.value("dur", -1.0) >= 0;
    });
    EXPECT_GE(count, 5) << name << ": expected at least one per step";
  }
  EXPECT_THAT(events.dump(), HasSubstr("cuda:0"));
}

// ---- precision ----

TEST_F(CudaTraining, LossesOfEachPrecisionAreCloseToFp32) {
  trained("fp32", {"--deterministic"});
  const std::vector<double> expected = losses("fp32");
  // The unit roundoff is 2^-11 for tf32 and fp16, and 2^-8 for bf16. A few dozen roundings between image and
  // loss add up like a random walk, and five steps amplify them.
  for (const auto& [precision, roundoff] :
       {std::pair("tf32", 0x1p-11), std::pair("fp16", 0x1p-11), std::pair("bf16", 0x1p-8)}) {
    trained(precision, {"--precision", precision, "--deterministic"});
    const std::vector<double> found = losses(precision);
    ASSERT_EQ(found.size(), expected.size()) << precision;
    for (std::size_t i = 0; i < found.size(); ++i)
      EXPECT_NEAR(found[i], expected[i], 8 * roundoff * expected[i]) << precision << " step " << i + 1;
    EXPECT_NE(found, expected) << precision << " was not used";
  }
  EXPECT_EQ(workshop.events("fp16", "step").back()["scale"], 65536);
  EXPECT_FALSE(workshop.events("bf16", "step").back().contains("scale"));
}

TEST_F(CudaTraining, HalfPrecisionCheckpointIsFp32AndEvaluatesInHalfPrecision) {
  trained("run", {"--precision", "fp16"});
  const auto evaluate = [&](const Arguments& more, const std::string& shown) {
    EXPECT_THAT(workshop.run("convoy-evaluate",
                             with({"--checkpoint", workshop.path("run").string(), "--batch-size", "8",
                                   "--json", workshop.path("evaluation.json").string()},
                                  more),
                             {.environment = {{"CONVOY_EMULATED_GPUS", "1"}}}),
                Prints(HasSubstr(shown)));
    return Json::parse(read_text(workshop.path("evaluation.json")))["loss"].get<double>();
  };
  const double as_trained = evaluate({"--device", "cuda"}, ", fp16");
  // The evaluation may use other algorithms, which round differently.
  EXPECT_NEAR(as_trained, workshop.result("run")["test_loss"].get<double>(), 0x1p-11);
  const double single = evaluate({"--device", "cuda", "--precision", "fp32"}, ", fp32");
  EXPECT_NE(single, as_trained);
  EXPECT_NEAR(evaluate({"--device", "cpu"}, ", fp32"), single, 1e-5)
      << "the CPU does not support fp16 and uses fp32";
}

TEST_F(CudaTraining, AGpuWithoutCodeIsADeviceErrorBeforeDataAreRead) {
  if (!is_emulated()) GTEST_SKIP() << "needs an emulated GPU";
  const ProcessResult run =
      train("run", {"--data", workshop.path("absent")}, {{"CONVOY_EMULATED_CAPABILITY", "7.0"}});
  EXPECT_EQ(run.exit_code, kDeviceError);
  EXPECT_THAT(error_line(run),
              HasSubstr("cuda:0: found compute capability 7.0, expected one for which this build has "
                        "code, emulated (cudaErrorNoKernelImageForDevice)"));
}

TEST_F(CudaTraining, RejectsContradictoryFlags) {
  const auto refused = [&](const Arguments& flags) {
    const ProcessResult run = train("run", flags);
    EXPECT_EQ(run.exit_code, kUsageError) << run.err;
    EXPECT_FALSE(std::filesystem::exists(workshop.path("run"))) << "a refused run leaves a directory";
    return error_line(run);
  };
  EXPECT_THAT(refused({"--device", "cpu", "--cuda-graph"}), HasSubstr("--cuda-graph: found --device cpu"));
  EXPECT_THAT(refused({"--loss-scale", "128"}),
              HasSubstr("--loss-scale: found --precision fp32, expected fp16"));
  EXPECT_THAT(refused({"--precision", "fp16", "--loss-scale", "0"}), HasSubstr("--loss-scale: found '0'"));
  EXPECT_THAT(refused({"--device", "cpu", "--plan-cache", "plans.json"}), HasSubstr("expected a GPU"));
  EXPECT_THAT(refused({"--deterministic", "--plan-cache", "plans.json"}),
              HasSubstr("expected only one of the two"));
}

// ---- overflow ----

TEST_F(CudaTraining, OverflowSkipsTheStepAndHalvesTheScale) {
  // With batch size 1 and a large learning rate, a prediction is soon certain and wrong. The gradient of its
  // logit is then 1, and 1 * 65536 exceeds the maximum of f16, 65504.
  const Json result = trained("run", {"--precision", "fp16", "--max-steps", "30", "--batch-size", "1", "--lr",
                                      "0.5", "--schedule", "constant", "--clip-norm", "1"});
  const Json last = workshop.events("run", "step").back();
  EXPECT_EQ(result["steps"], 30);
  EXPECT_GE(last["skipped"], 1);
  EXPECT_EQ(last["scale"], 65536 / std::exp2(last["skipped"].get<double>()));
  EXPECT_TRUE(std::isfinite(last["average_loss"].get<double>()));
}

TEST_F(CudaTraining, OverflowAtTheMinimumScaleStopsTheRun) {
  ASSERT_EQ(trained("run", {"--precision", "fp16", "--max-steps", "2"})["steps"], 2);
  const auto checkpoints = checkpoints_of(workshop.path("run"));
  // A fixed scale is its own minimum.
  const ProcessResult run = train(
      "run", {"--precision", "fp16", "--loss-scale", "16777216", "--resume", "auto", "--max-steps", "6"});
  EXPECT_EQ(run.exit_code, kNumericError) << run.err;
  EXPECT_THAT(error_line(run),
              AllOf(HasSubstr("overflow f16"), HasSubstr("16777216"), HasSubstr("the first in "),
                    HasSubstr("the checkpoint of step 2 is intact")));
  EXPECT_EQ(checkpoints_of(workshop.path("run")), checkpoints);
}

TEST_F(CudaTraining, NonFiniteLossStopsTheRunAndKeepsTheLastCheckpoint) {
  const ProcessResult run = train("run", {"--save-every", "1", "--lr", "1e30", "--schedule", "constant"});
  EXPECT_EQ(run.exit_code, kNumericError) << run.err;
  EXPECT_THAT(error_line(run),
              AllOf(HasSubstr("the loss of step 2 is"), HasSubstr("the checkpoint of step 1 is intact")));
  EXPECT_EQ(checkpoints_of(workshop.path("run")).size(), 1U);
  const Arguments evaluate = {"--checkpoint", workshop.path("run").string(), "--device", "cpu"};
  EXPECT_EQ(workshop.run("convoy-evaluate", evaluate).exit_code, 0);
}

// ---- memory ----

TEST_F(CudaTraining, OutOfMemoryDuringARunKeepsTheLastCheckpoint) {
  if (!is_emulated()) GTEST_SKIP() << "needs an emulated GPU";
  ASSERT_EQ(trained("run", {"--max-steps", "2"})["steps"], 2);
  const auto checkpoints = checkpoints_of(workshop.path("run"));
  const ProcessResult run = train("run", {"--resume", "auto", "--max-steps", "6", "--no-data-on-device"},
                                  {{"CONVOY_EMULATED_MEMORY", "820000"}, {"CONVOY_MEMORY_CACHE", "off"}});
  EXPECT_EQ(run.exit_code, kDeviceError) << run.err;
  EXPECT_THAT(error_line(run), AllOf(HasSubstr("out of memory on cuda:0"), HasSubstr("--batch-size")));
  EXPECT_EQ(checkpoints_of(workshop.path("run")), checkpoints);
  EXPECT_EQ(trained("run", {"--resume", "auto", "--max-steps", "6"})["steps"], 6)
      << "the run continues from the last checkpoint";
}

TEST_F(CudaTraining, FailedCaptureFallsBackToEagerSteps) {
  if (!is_emulated()) GTEST_SKIP() << "needs an emulated GPU";
  // Enough memory for an eager step, but not for the memory pool of its graph.
  const Arguments flags = {"--no-data-on-device", "--deterministic"};
  const Json small =
      trained("small", flags, {{"CONVOY_EMULATED_MEMORY", "1000000"}, {"CONVOY_MEMORY_CACHE", "off"}});
  ASSERT_EQ(warnings("small").size(), 1U);
  EXPECT_THAT(warnings("small")[0], AllOf(HasSubstr("op by op"), HasSubstr("out of memory on cuda:0")));
  // Without graphs, the memory suffices.
  Arguments without = flags;
  without.push_back("--no-cuda-graph");
  trained("without", without, {{"CONVOY_EMULATED_MEMORY", "1000000"}, {"CONVOY_MEMORY_CACHE", "off"}});
  EXPECT_TRUE(warnings("without").empty());
  // The workspace of some algorithms does not fit either, so sums may round differently.
  trained("large", flags);
  for (std::size_t i = 0; i < 5; ++i)
    EXPECT_NEAR(losses("small").at(i), losses("large").at(i), 1e-5 * losses("large").at(i)) << i;
}

// ---- algorithm cache ----

TEST_F(CudaTraining, AlgorithmCacheIsReusedByTheNextRun) {
  const std::string plans = workshop.path("plans.json").string();
  const Json first = trained("first", {"--plan-cache", plans});
  const std::string kept = read_text(plans);
  EXPECT_THAT(Json::parse(kept)["choices"].dump(), HasSubstr("conv2d forward"));
  EXPECT_TRUE(warnings("first").empty());
  const Json second = trained("second", {"--plan-cache", plans});
  EXPECT_TRUE(warnings("second").empty());
  EXPECT_EQ(Json::parse(read_text(plans))["choices"].size(), Json::parse(kept)["choices"].size());
  const Json third = trained("third", {"--plan-cache", plans});
  // The first step of the first run used heuristic algorithms, so the first two runs may round differently.
  // The third run matches the second, unless the algorithms of a real cuDNN add in a random order.
  EXPECT_TRUE(third["parameters_hash"] == second["parameters_hash"] || !is_emulated());
}

// In the emulator, the fastest plans are compiled at run time.
TEST_F(CudaTraining, CompiledPlansAreReusedByTheNextRun) {
  if (!is_emulated()) GTEST_SKIP() << "needs an emulated GPU";
  const Environment no_compilation = {{"CONVOY_EMULATED_CUDNN_COMPILATIONS", "0"}};
  const std::string plans = workshop.path("plans.json").string();
  trained("first", {"--plan-cache", plans});
  const std::string kept_text = read_text(plans);
  const Json kept = Json::parse(kept_text);
  EXPECT_GE(kept["compiled"].size(), 1U);
  trained("second", {"--plan-cache", plans}, no_compilation);
  EXPECT_TRUE(warnings("second").empty());
  EXPECT_EQ(read_text(plans), kept_text);
  // Without the code, other plans are found.
  Json without = kept;
  without.erase("compiled");
  std::ofstream(plans) << without;
  trained("third", {"--plan-cache", plans}, no_compilation);
  EXPECT_EQ(Json::parse(read_text(plans))["compiled"].size(), 0U);
}

TEST_F(CudaTraining, DamagedCompiledPlansAreCompiledAgainWithAWarning) {
  if (!is_emulated()) GTEST_SKIP() << "needs an emulated GPU";
  const std::string plans = workshop.path("plans.json").string();
  trained("first", {"--plan-cache", plans});
  const Json kept = Json::parse(read_text(plans));
  ASSERT_GE(kept["compiled"].size(), 2U);
  Json flipped = kept, exchanged = kept;
  std::string code = kept["compiled"][0][2];
  code[code.size() / 2] ^= 1;
  flipped["compiled"][0][2] = code;
  exchanged["compiled"][0][0].swap(exchanged["compiled"][1][0]);  // code for another problem
  int run = 0;
  for (const auto& [json, said] :
       {std::pair(flipped, "damaged code of 1 "), std::pair(exchanged, "damaged code of 2 ")}) {
    std::ofstream(plans) << json;
    const std::string out = "run" + std::to_string(run++);
    trained(out, {"--plan-cache", plans});
    ASSERT_EQ(warnings(out).size(), 1U);
    EXPECT_THAT(warnings(out)[0], AllOf(HasSubstr("--plan-cache"), HasSubstr(said)));
    const Json now = Json::parse(read_text(plans));  // its order is that of the last use
    const auto sorted = [](const Json& file) {
      return std::set<Json>(file["compiled"].begin(), file["compiled"].end());
    };
    EXPECT_EQ(sorted(now), sorted(kept));
  }
}

TEST_F(CudaTraining, DamagedOrStaleCacheIsReplacedWithAWarning) {
  const std::string plans = workshop.path("plans.json").string();
  trained("first", {"--plan-cache", plans});
  const std::string good = read_text(plans);
  std::string stale = good;
  stale.insert(stale.find("hardware") + 12, "Imagined ");
  Json choices = Json::parse(good);
  choices.erase("compiled");
  std::string hollow = choices.dump();  // for this hardware, with engines that cuDNN does not know
  for (std::size_t at = 0; (at = hollow.find("engine ", at)) != std::string::npos; at += 7)
    hollow.replace(at, 7, "engine x");
  const std::string cut = good.substr(0, good.size() / 2);
  int run = 0;
  for (const auto& [bytes, said] : {std::pair(cut, "is damaged"), std::pair(stale, "is for Imagined"),
                                    std::pair(std::string(), "is damaged"), std::pair(hollow, "")}) {
    std::ofstream(plans) << bytes;
    const std::string out = "run" + std::to_string(run++);
    trained(out, {"--plan-cache", plans});
    const std::vector<std::string> warned = warnings(out);
    if (*said == '\0') {
      EXPECT_TRUE(warned.empty());
    } else {
      ASSERT_EQ(warned.size(), 1U) << said;
      EXPECT_THAT(warned[0],
                  AllOf(HasSubstr("--plan-cache"), HasSubstr(said), HasSubstr("autotuning starts over")));
    }
    EXPECT_EQ(Json::parse(read_text(plans))["hardware"], Json::parse(good)["hardware"]) << said;
    EXPECT_THAT(read_text(plans), Not(HasSubstr("engine x"))) << "unusable entries were kept";
  }
}

TEST_F(CudaTraining, UnwritableCacheIsAWarning) {
  trained("run", {"--plan-cache", "/proc/no/plans.json"});
  ASSERT_EQ(warnings("run").size(), 1U);
  EXPECT_THAT(warnings("run")[0], HasSubstr("the autotuned algorithms cannot be saved"));
}

TEST_F(CudaTraining, CheckpointContainsTheAlgorithmCache) {
  trained("run", {"--max-steps", "4"});
  const Json manifest = Json::parse(read_text(checkpoints_of(workshop.path("run")).back() / "manifest.json"));
  EXPECT_THAT(manifest.dump(), HasSubstr("conv2d forward"));
  trained("deterministic", {"--max-steps", "4", "--deterministic"});
  EXPECT_THAT(read_text(checkpoints_of(workshop.path("deterministic")).back() / "manifest.json"),
              Not(HasSubstr("conv2d forward")));
}

// ---- convolutions that cuDNN cannot run, after the five of apps/programs/library_loading.h ----

TEST_F(CudaTraining, ContinuesWithOtherPlanIfFirstCannotRun) {
  if (!is_emulated()) GTEST_SKIP() << "needs an emulated GPU";
  trained("run", {"--max-steps", "6"}, {{"CONVOY_EMULATED_CUDNN_FAILURE", "5"}});
  const std::vector<std::string> warned = warnings("run");
  ASSERT_EQ(warned.size(), 1U);
  EXPECT_THAT(warned[0], AllOf(HasSubstr("cannot run conv2d forward f32"),
                               HasSubstr("CUDNN_STATUS_EXECUTION_FAILED"), HasSubstr("replaces it")));
  const ProcessResult evaluated =
      workshop.run("convoy-evaluate", {"--checkpoint", workshop.path("run").string(), "--device", "cuda"},
                   {.environment = {{"CONVOY_EMULATED_GPUS", "1"}, {"CONVOY_EMULATED_CUDNN_FAILURE", "0"}}});
  EXPECT_EQ(evaluated.exit_code, 0);
  EXPECT_THAT(evaluated.err, HasSubstr("convoy-evaluate: warning: engine"));
}

// Each deterministic step of LeNet executes five convolutions, and the third step is captured.
TEST_F(CudaTraining, RunsOpByOpIfPlanCannotRunInCapture) {
  if (!is_emulated()) GTEST_SKIP() << "needs an emulated GPU";
  trained("run", {"--deterministic"}, {{"CONVOY_EMULATED_CUDNN_FAILURE", "17"}});
  const std::vector<std::string> warned = warnings("run");
  ASSERT_EQ(warned.size(), 2U);
  EXPECT_THAT(warned[0], HasSubstr("replaces it"));
  EXPECT_THAT(warned[1], AllOf(HasSubstr("steps run op by op"), HasSubstr("cannot run conv2d")));
  EXPECT_EQ(losses("run").size(), 5U);
}

}  // namespace
}  // namespace convoy::testing
