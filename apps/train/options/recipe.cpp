// The default hyperparameters, which depend on the model, data set and optimizer, and values computed from them.
#include <algorithm>
#include <array>
#include <cmath>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>

#include "convoy/apps/train/options/options.h"
#include "convoy/datasets/formats/registry.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy {
namespace {

/// The default hyperparameters of one kind of training.
struct Recipe {
  std::int64_t epochs;
  std::int64_t batch_size;
  double lr;
  double weight_decay;
  double label_smoothing;
  double warmup;  // fraction of all steps
};

/// A row of the table of recipes. An empty name matches every model or data set.
struct RecipeEntry {
  std::string_view model, dataset;
  Recipe recipe;
};

// The defaults that --help shows, for SGD with Nesterov momentum 0.9. The first row that matches counts. Own photographs
// are few, so their batches are small and their epochs many.
constexpr Recipe kPhotographs{30, 32, 0.0125, 5e-4, 0.1, 0.2};
constexpr std::array kSgdRecipes{
    RecipeEntry{"resnet18", "folder", kPhotographs},
    RecipeEntry{"resnet34", "folder", kPhotographs},
    RecipeEntry{"resnet50", "folder", kPhotographs},
    RecipeEntry{"lenet", "mnist", {6, 128, 0.05, 5e-4, 0, 0.1}},
    RecipeEntry{"lenet", "", {10, 128, 0.05, 5e-4, 0, 0.1}},
    RecipeEntry{"", "", {10, 128, 0.2, 5e-4, 0.1, 0.2}},
};

Recipe sgd_recipe(std::string_view model, std::string_view dataset) {
  const auto entry = std::ranges::find_if(kSgdRecipes, [&](const RecipeEntry& row) {
    return (row.model.empty() || row.model == model) && (row.dataset.empty() || row.dataset == dataset);
  });
  return entry->recipe;
}

/// Returns the factor of the default rate of SGD at the batch size of `options`: proportional to it, because a step
/// averages the gradients of a batch. Large factors diverge, without batch norm all above 1. 1 for the single batch of
/// --overfit-batch.
double rate_factor(const TrainOptions& options, std::int64_t default_batch_size) {
  if (options.overfit_batch) return 1;
  const double maximum = models::find(options.model).has_batch_norm ? 4 : 1;
  return std::min(static_cast<double>(*options.batch_size) / static_cast<double>(default_batch_size),
                  maximum);
}

/// Returns rate * factor in four digits: 0.009375, not 0.009375000000000001.
double scaled(double rate, double factor) {
  return factor == 1 ? rate : std::stod(fmt::format("{:.4g}", rate * factor));
}

/// Returns the name of the directory of own images, which tells data sets apart; "folder" without one.
std::string directory_name(const std::string& directory) {
  if (directory.empty()) return "folder";
  std::filesystem::path path = std::filesystem::absolute(directory).lexically_normal();
  if (!path.has_filename()) path = path.parent_path();
  return path.has_filename() ? path.filename().string() : "folder";
}

/// Sets an option that has no value.
template <class T, class Value>
void fill(std::optional<T>& option, Value value) {
  if (!option) option = T(value);
}

/// A row of the table of the networks of the speed records.
struct SpeedrunEntry {
  std::string_view model;
  std::int64_t epochs;
  std::int64_t batch_size;
  double lr;      // of the filters
  double sgd_lr;  // of the head, whose logits speedrun and speedrun-96 divide by 256 and by 9
  double bias_lr;
  const char* augment;  // of photographs
};

// The numbers are those of the record script airbench94_muon, except for the small network's epochs, batch size and
// rate of filters. The rates of SGD and the augmentation of speedrun-96 are those of airbench96_faster, whose rates are
// 9 and 64 * 9, divided by 1024 (1 + 1 / (1 - 0.85)).
constexpr const char* kSmallShifts = "crop=2,reflect,alternating-flip";
constexpr std::array kSpeedrunEntries{
    SpeedrunEntry{"speedrun", 8, 2000, 0.24, 0.67, 0.053, kSmallShifts},
    SpeedrunEntry{"speedrun-small", 6, 500, 0.12, 0.67, 0.053, kSmallShifts},
    SpeedrunEntry{"speedrun-96", 37, 512, 0.12, 0.00115, 0.073, "crop=4,reflect,alternating-flip,cutout=12"}};

/// Returns the row of a model; null for other models.
const SpeedrunEntry* speedrun_entry(std::string_view model) {
  const auto* const entry = std::ranges::find(kSpeedrunEntries, model, &SpeedrunEntry::model);
  return entry == kSpeedrunEntries.end() ? nullptr : entry;
}

/// Returns whether the training has the recipe of a network of the speed records, which is for its optimizer.
const SpeedrunEntry* speedrun_recipe(const TrainOptions& options) {
  const bool is_muon = options.optimizer && std::holds_alternative<MuonOptions>(*options.optimizer);
  return is_muon && !options.overfit_batch ? speedrun_entry(options.model) : nullptr;
}

/// Sets what the networks of the speed records have of their own. The scripts' rates of SGD are for sums of losses; the
/// decay is 2e-6 of a parameter per sample, at the peak of the rate.
void fill_speedrun(TrainOptions& options, const SpeedrunEntry& entry, bool natural_images) {
  fill(options.epochs, options.max_steps > 0 ? 0 : entry.epochs);
  fill(options.batch_size, entry.batch_size);
  fill(options.lr, entry.lr);
  fill(options.bias_lr, entry.bias_lr);
  fill(options.weight_decay, 2e-6 * static_cast<double>(*options.batch_size) / *options.lr);
  fill(options.decay_biases, true);
  fill(options.label_smoothing, 0.2);
  fill(options.loss_reduction, "sum");
  fill(options.freeze, "whiten=3");
  fill(options.augment, natural_images ? entry.augment : "none");
  fill(options.tta, natural_images);
}

}  // namespace

void set_default_model(TrainOptions& options, const CommandLine& line) {
  if ((options.data.dataset != "folder" && options.data.dataset != "shards") || line.given("model")) return;
  options.model = "resnet18";
  if (!line.given("image-size")) options.data.image_size = 128;
}

OptimizerOptions default_optimizer(const TrainOptions& options, std::string_view name) {
  const SpeedrunEntry* const speedrun = options.overfit_batch ? nullptr : speedrun_entry(options.model);
  OptimizerOptions optimizer;
  if (name.empty()) name = speedrun != nullptr ? MuonOptions::kName : SgdOptions::kName;
  select_alternative(optimizer, name);
  auto* const muon = std::get_if<MuonOptions>(&optimizer);
  if (muon != nullptr && speedrun != nullptr)
    *muon = {.momentum = 0.6,
             .sgd_lr = speedrun->sgd_lr,
             .sgd_momentum = 0.85,
             .ns_steps = 3,
             .normalize_filters = true};
  return optimizer;
}

ScheduleOptions default_schedule(const TrainOptions& options, std::string_view name) {
  const bool is_speedrun = speedrun_recipe(options) != nullptr;
  ScheduleOptions schedule;
  if (name.empty()) name = is_speedrun ? LinearSchedule::kName : CosineSchedule::kName;
  select_alternative(schedule, name);
  const double warmup = is_speedrun ? 0 : sgd_recipe(options.model, options.data.dataset).warmup;
  std::visit(
      [&](auto& chosen) {
        if constexpr (requires { chosen.warmup; })
          if (chosen.warmup.value > 0) chosen.warmup = warmup;
      },
      schedule);
  return schedule;
}

void resolve_recipe(TrainOptions& options) {
  Recipe recipe = sgd_recipe(options.model, options.data.dataset);
  const bool natural_images = data::find_dataset(options.data.dataset).natural_images;
  if (options.augment == "auto") options.augment.reset();
  if (!options.optimizer) options.optimizer = default_optimizer(options, "");
  const SpeedrunEntry* const speedrun = speedrun_recipe(options);
  const std::int64_t default_batch_size = speedrun != nullptr ? speedrun->batch_size : recipe.batch_size;
  if (speedrun != nullptr) fill_speedrun(options, *speedrun, natural_images);
  fill(options.batch_size, recipe.batch_size);
  const double factor = rate_factor(options, default_batch_size);
  recipe.lr = scaled(recipe.lr, factor);
  std::visit(
      [&](auto& chosen) {
        using T = std::decay_t<decltype(chosen)>;
        if constexpr (requires { chosen.nesterov; }) fill(chosen.nesterov, chosen.momentum > 0);
        if constexpr (requires { chosen.sgd_lr; }) {
          fill(chosen.sgd_lr, recipe.lr);
          fill(options.bias_lr, *chosen.sgd_lr);
        }
        // The steps of muon are fractions of the norm of a parameter, at every batch size.
        constexpr bool kIsMuon = std::is_same_v<T, MuonOptions>;
        if constexpr (requires { T::kLr; }) recipe.lr = scaled(T::kLr, kIsMuon ? 1 : std::sqrt(factor));
        if constexpr (requires { T::kWeightDecay; }) recipe.weight_decay = T::kWeightDecay;
      },
      *options.optimizer);
  if (options.overfit_batch) {
    // The same batch in each step: disable everything that keeps the loss above zero.
    recipe.label_smoothing = 0;
    recipe.weight_decay = 0;
    recipe.epochs = 200;
    fill(options.augment, "none");
    // An epoch is one step: evaluate and save only at the end.
    fill(options.eval_every, 0);
    fill(options.save_every, recipe.epochs);
  }
  fill(options.augment, natural_images ? "crop=4,flip" : "none");
  // The CPU decodes original images.
  if (data::make_transform(*options.augment, {}).original.enabled())
    fill(options.compute.data_on_device, false);
  fill(options.epochs, options.max_steps > 0 ? 0 : recipe.epochs);
  fill(options.lr, recipe.lr);
  fill(options.weight_decay, recipe.weight_decay);
  fill(options.label_smoothing, recipe.label_smoothing);
  fill(options.loss_reduction, "mean");
  fill(options.decay_biases, false);
  if (!options.schedule) options.schedule = default_schedule(options, "");
  fill(options.freeze, "none");
  fill(options.eval_every, 1);
  fill(options.tta, false);
  fill(options.save_every, 0);
  const std::string& dataset = options.data.dataset;
  fill(options.out,
       "runs/" + options.model + "-" + (dataset == "folder" ? directory_name(options.data.data) : dataset));
}

TrainingLength warmup_of(const ScheduleOptions& schedule) {
  return std::visit(
      [](const auto& chosen) -> TrainingLength {
        if constexpr (requires { chosen.warmup; })
          return chosen.warmup;
        else
          return 0;
      },
      schedule);
}

double min_lr_of(const ScheduleOptions& schedule) {
  return std::visit(
      [](const auto& chosen) -> double {
        if constexpr (requires { chosen.min_lr; })
          return chosen.min_lr;
        else
          return 0;
      },
      schedule);
}

}  // namespace convoy
