// Tests of training and evaluation in bf16 on the CPU, and with fewer of its instructions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <nlohmann/json.hpp>
#include <utility>

#include "tests/apps/programs.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

class HalfPrecision : public ::testing::Test {
 protected:
  /// Returns the losses of LeNet's first five steps with a batch size of eight.
  std::vector<double> losses_of(const std::string& out, const Arguments& more) const {
    EXPECT_THAT(run_program(workshop.train_arguments(
                    out, with({"--max-steps", "5", "--batch-size", "8", "--device", "cpu"}, more))),
                Succeeds());
    return workshop.numbers(out, "step", "loss");
  }

  /// Returns the loss that convoy-evaluate computes for the run "run", and expects `shown` in its output.
  double evaluated(const Arguments& more, const std::string& shown) const {
    EXPECT_THAT(
        workshop.run("convoy-evaluate", with({"--checkpoint", workshop.path("run").string(), "--json",
                                              workshop.path("evaluation.json").string(), "--device", "cpu"},
                                             more)),
        Prints(HasSubstr(shown)));
    return Json::parse(read_text(workshop.path("evaluation.json")))["loss"].get<double>();
  }

  const Workshop workshop;
};

TEST_F(HalfPrecision, LossesAreCloseToSinglePrecision) {
  const std::vector<double> single = losses_of("single", {});
  const std::vector<double> half = losses_of("half", {"--precision", "bf16"});
  ASSERT_EQ(half.size(), 5U);
  // The unit roundoff is 2^-8. A few dozen roundings between image and loss add up like a random walk, and
  // five steps amplify them.
  for (std::size_t i = 0; i < half.size(); ++i) EXPECT_NEAR(half[i], single.at(i), 8 * 0x1p-8 * single[i]);
  EXPECT_NE(half, single) << "bf16 was not used";
}

/// Lowers the instructions that oneDNN may use step by step. On a processor that lacks some of them, several
/// steps run the same code.
TEST_F(HalfPrecision, EachLevelOfInstructionsTrainsAlikeAndWithoutAWarning) {
  const auto train = [&](const std::string& out, const char* model, const char* precision,
                         const std::map<std::string, std::string>& environment) {
    EXPECT_THAT(
        run_program(workshop.train_arguments(out, {"--model", model, "--precision", precision, "--max-steps",
                                                   "3", "--batch-size", "8", "--device", "cpu"}),
                    {.environment = environment}),
        Succeeds());
    return workshop.numbers(out, "step", "loss");
  };
  // In f32 the order of sums differs. In bf16 it decides how intermediate results are rounded.
  constexpr std::pair<const char*, double> kPrecisions[] = {{"fp32", 1e-3}, {"bf16", 0.1}};
  for (const char* model : {"lenet", "resnet20"})
    for (const auto& [precision, tolerance] : kPrecisions) {
      const std::string name = std::string(model) + "_" + precision + "_";
      const std::vector<double> best = train(name, model, precision, {});
      ASSERT_EQ(best.size(), 3U);
      const auto expect_alike = [&, bound = tolerance](const std::vector<double>& losses) {
        ASSERT_EQ(losses.size(), best.size());
        for (std::size_t i = 0; i < best.size(); ++i) EXPECT_NEAR(losses[i], best[i], bound * best[i]);
      };
      for (const char* level : {"AVX512_CORE_AMX", "AVX512_CORE_BF16", "AVX512_CORE", "AVX2", "SSE41"}) {
        SCOPED_TRACE(name + level);
        expect_alike(train(name + level, model, precision, {{"ONEDNN_MAX_CPU_ISA", level}}));
        EXPECT_THAT(workshop.events(name + level, "warning"), ::testing::IsEmpty());
      }
      SCOPED_TRACE(name + "on");  // oneDNN need not have what it is asked for
      expect_alike(train(name + "on", model, precision,
                         {{"ONEDNN_MAX_CPU_ISA", "AVX2"}, {"CONVOY_ONEDNN_BF16", "on"}}));
    }
}

TEST_F(HalfPrecision, BitsDoNotDependOnThreads) {
  EXPECT_EQ(losses_of("one", {"--precision", "bf16", "--threads", "1"}),
            losses_of("two", {"--precision", "bf16", "--threads", "2"}));
}

TEST_F(HalfPrecision, ResumesBitForBit) {
  losses_of("whole", {"--precision", "bf16", "--save-every", "3", "--keep-last", "0"});
  const std::filesystem::path middle = workshop.path("whole") / "checkpoints" / "step_000003";
  losses_of("rest", {"--precision", "bf16", "--save-every", "3", "--resume", middle.string()});
  EXPECT_EQ(workshop.result("rest")["parameters_hash"], workshop.result("whole")["parameters_hash"]);
  const std::string weights = read_text(middle / "model.safetensors");
  EXPECT_THAT(weights, HasSubstr(R"("dtype":"F32")"));
  EXPECT_EQ(weights.find(R"("dtype":"BF16")"), std::string::npos);
}

TEST_F(HalfPrecision, EvaluationUsesTrainingPrecision) {
  losses_of("run", {"--precision", "bf16"});
  const double as_trained = evaluated({}, ", bf16");
  // The same losses, summed in batches of another size.
  EXPECT_NEAR(as_trained, workshop.result("run")["test_loss"].get<double>(), 1e-6 * as_trained);
  const double single = evaluated({"--precision", "fp32"}, ", fp32");
  EXPECT_NE(single, as_trained);
  EXPECT_NEAR(single, as_trained, 8 * 0x1p-8 * single);
}

TEST_F(HalfPrecision, RefusesFp16OnTheCpu) {
  EXPECT_THAT(run_program(workshop.train_arguments("run", {"--device", "cpu", "--precision", "fp16"})),
              FailsWith(2, "--precision fp16: the CPU supports fp64, fp32 and bf16, expected a GPU"));
}

}  // namespace
}  // namespace convoy::testing
