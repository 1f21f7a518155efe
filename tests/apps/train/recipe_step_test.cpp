// Whole steps of the speed recipe: trainings with the default flags of speedrun-small and speedrun-96 are compared with
// PyTorch (tests/reference/recipe.py): network, sum of smoothed losses, rates by group, Muon and SGD, early end of a
// bias. And a training by SGD alone, with the same parts.
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

// Trains by `options` with one batch of all images per epoch, so that their order does not matter. `tolerance` is
// relative to the loss or to the norm of a parameter.
void expect_steps(const std::string& name, models::Model model, std::int64_t count, std::int64_t steps,
                  double tolerance, TrainOptions options = {}) {
  const TempDirectory directory;
  options.model = model.name();
  options.augment = "none";
  options.epochs = steps;
  options.batch_size = count;
  options.precision = "fp64";
  options.out = directory.path().string();
  options.eval_every = 0;
  options.log_every = 1;
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
  Trainer trainer({.options = options,
                   .model = model,
                   .device = device,
                   .data = data,
                   .transform = {},
                   .checkpoints = checkpoints});
  struct : training::Callback {
    std::vector<double> all;
    void on_step(const training::StepResult& result) override { all.push_back(result.loss); }
  } recorder;
  trainer.add(recorder);
  ASSERT_EQ(trainer.run(), 0);
  const std::vector<double>& losses = recorder.all;

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
  expect_steps("speedrun-small", models::speedrun_small(), 16, 4, 1e-10);
}

TEST(RecipeStep, Speedrun96MatchesPyTorch) {
  expect_steps("speedrun-96", models::speedrun_96(), 4, 2, 1e-10);
}

TEST(RecipeStep, SgdWithRatesOfItsGroupsMatchesPyTorch) {
  expect_steps("speedrun-small-sgd", models::speedrun_small(), 16, 4, 1e-10,
               {.optimizer = SgdOptions{.momentum = 0.85},
                .lr = 0.002,
                .bias_lr = 0.02,
                .weight_decay = 2e-6 * 16 / 0.002,
                .decay_biases = true,
                .label_smoothing = 0.2,
                .loss_reduction = "sum",
                .schedule = LinearSchedule{.warmup = 0},
                .freeze = "whiten=3",
                .lr_for = "head=0.05"});
}

}  // namespace
}  // namespace convoy::testing
