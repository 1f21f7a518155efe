// Whole steps of the speed recipe: a training with the default flags of speedrun-small is compared with PyTorch
// (tests/reference/recipe.py): network, sum of smoothed losses, rates by group, Muon and SGD, early end of a bias.
#include <gtest/gtest.h>

#include <cmath>

#include "convoy/apps/train/trainer.h"
#include "convoy/models/models.h"
#include "tests/testing/support/reference.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy::testing {
namespace {

constexpr std::int64_t kSide = 32;

data::ImageSet images(std::int64_t count) {
  const DeviceContext cpu = Device::cpu();
  const Tensor bytes = formula_labels("recipe/images", count * kSide * kSide * 3, 256).to(DType::u8);
  data::ImageSet set{Tensor::empty({count, kSide, kSide, 3}, DType::u8, cpu),
                     formula_labels("recipe/labels", count, 10)};
  set.images.slice(0, {bytes.numel()}).copy_from(bytes);
  return set;
}

// Trains the `hardest` fraction of a batch of all images, so that their order does not matter. `tolerance` is relative
// to the loss or to the norm of a parameter.
void expect_steps(const std::string& name, models::Model model, std::int64_t count, double hardest,
                  std::int64_t steps, double tolerance) {
  const TempDirectory directory;
  TrainOptions options{.model = model.name(),
                       .augment = "none",
                       .hardest = hardest,
                       .epochs = steps,
                       .batch_size = count,
                       .precision = "fp64",
                       .out = directory.path().string(),
                       .eval_every = 0,
                       .log_every = 1};
  resolve_recipe(options);
  model.to(DType::f64);
  fill_by_formula(model.root());
  const data::DataSet data{.name = "formula",
                           .classes = {"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"},
                           .train = images(count),
                           .test = images(count),
                           .note = "",
                           .warnings = {}};
  const DeviceContext device = DeviceContext::create_cpu({.threads = 2});
  io::CheckpointDirectory checkpoints(directory.path());
  Trainer trainer(options, {.model = model,
                            .device = device,
                            .data = data,
                            .transform = {},
                            .checkpoints = checkpoints,
                            .extra = {},
                            .stop_signal = {}});
  std::vector<double> losses;
  trainer.add({.on_step = [&](const StepReport& report) { losses.push_back(report.measured->loss); }});
  ASSERT_EQ(trainer.run(), 0);

  const Reference expected("recipe.safetensors");
  ASSERT_EQ(std::ssize(losses), steps);
  for (std::size_t step = 0; step < losses.size(); ++step) {
    const double loss = expected.at(fmt::format("{}/loss{}", name, step)).item();
    EXPECT_NEAR(losses[step], loss, tolerance * loss) << step;
  }
  for (const nn::NamedParameter& parameter : model.parameters()) {
    const std::string key = name + "/" + parameter.name;
    const std::vector<double> values = parameter.variable.value().to_vector<double>();
    const std::vector<double> factors =
        formula_values("recipe/" + parameter.name, parameter.variable.shape(), DType::f64)
            .to_vector<double>();
    double squares = 0, probe = 0;
    for (std::size_t i = 0; i < values.size(); ++i) {
      squares += values[i] * values[i];
      probe += values[i] * factors[i];
    }
    const double norm = expected.at(key + "/norm").item();
    EXPECT_NEAR(std::sqrt(squares), norm, tolerance * norm) << parameter.name;
    EXPECT_NEAR(probe, expected.at(key + "/probe").item(), tolerance * norm) << parameter.name;
  }
}

// Sums of up to 16,384 rounded terms, in steps that depend on one another.
TEST(RecipeStep, SpeedrunSmallMatchesPyTorch) {
  expect_steps("speedrun-small", models::speedrun_small(), 16, 1, 4, 1e-10);
}

TEST(RecipeStep, HardestSamplesMatchPyTorch) {
  expect_steps("speedrun-small-hardest", models::speedrun_small(), 16, 0.4, 4, 1e-10);
}

TEST(RecipeStep, Speedrun96MatchesPyTorch) {
  expect_steps("speedrun-96", models::speedrun_96(), 4, 1, 2, 1e-10);
}

}  // namespace
}  // namespace convoy::testing
