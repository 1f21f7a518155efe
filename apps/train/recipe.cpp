// The default hyperparameters, which depend on the model, data set and optimizer, and values computed from them.
#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "convoy/apps/train/options.h"
#include "convoy/apps/train/tuning/parameter_rules.h"
#include "convoy/datasets/formats/registry.h"
#include "convoy/kernels/base/check.h"

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

// The defaults that --help shows, for SGD with Nesterov momentum 0.9. The first row that matches counts.
constexpr std::array kSgdRecipes{
    RecipeEntry{"lenet", "mnist", {6, 128, 0.05, 5e-4, 0, 0.1}},
    RecipeEntry{"lenet", "", {10, 128, 0.05, 5e-4, 0, 0.1}},
    RecipeEntry{"", "", {10, 128, 0.2, 5e-4, 0.1, 0.2}},
};

Recipe sgd_recipe(std::string_view model, std::string_view dataset) {
  const auto entry = std::find_if(kSgdRecipes.begin(), kSgdRecipes.end(), [&](const RecipeEntry& row) {
    return (row.model.empty() || row.model == model) && (row.dataset.empty() || row.dataset == dataset);
  });
  return entry->recipe;
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
  const auto* const entry = std::find_if(kSpeedrunEntries.begin(), kSpeedrunEntries.end(),
                                         [&](const SpeedrunEntry& row) { return row.model == model; });
  return entry == kSpeedrunEntries.end() ? nullptr : entry;
}

/// Sets what the networks of the speed records have of their own, for their optimizer. The scripts' rates of SGD are
/// for sums of losses; the decay is 2e-6 of a parameter per sample, at the peak of the rate.
void fill_speedrun(TrainOptions& options, const SpeedrunEntry& entry, bool natural_images) {
  fill(options.epochs, options.max_steps > 0 ? 0 : entry.epochs);
  fill(options.batch_size, entry.batch_size);
  fill(options.lr, entry.lr);
  fill(options.sgd_lr, entry.sgd_lr);
  fill(options.bias_lr, entry.bias_lr);
  fill(options.momentum, 0.6);
  fill(options.sgd_momentum, 0.85);
  fill(options.ns_steps, 3);
  fill(options.normalize_filters, true);
  fill(options.weight_decay, 2e-6 * static_cast<double>(*options.batch_size) / *options.lr);
  fill(options.decay_biases, true);
  fill(options.label_smoothing, 0.2);
  fill(options.loss_reduction, "sum");
  fill(options.schedule, "linear");
  fill(options.warmup, 0);
  fill(options.freeze, "whiten=3");
  fill(options.augment, natural_images ? entry.augment : "none");
  fill(options.tta, natural_images);
}

}  // namespace

void resolve_recipe(TrainOptions& options) {
  Recipe recipe = sgd_recipe(options.model, options.data.dataset);
  const bool natural_images = data::find_dataset(options.data.dataset).natural_images;
  if (options.augment == "auto") options.augment.reset();
  const SpeedrunEntry* const speedrun = options.overfit_batch ? nullptr : speedrun_entry(options.model);
  fill(options.optimizer, speedrun != nullptr ? "muon" : "sgd");
  const bool is_muon = options.optimizer == "muon";
  const bool has_speedrun_recipe = is_muon && speedrun != nullptr;
  const std::int64_t default_batch_size = has_speedrun_recipe ? speedrun->batch_size : recipe.batch_size;
  if (has_speedrun_recipe) fill_speedrun(options, *speedrun, natural_images);
  if (is_muon) {
    fill(options.sgd_lr, recipe.lr);  // of the parameters that Muon leaves to SGD
    fill(options.bias_lr, *options.sgd_lr);
    fill(options.sgd_momentum, 0.9);
    fill(options.ns_steps, 5);
    fill(options.normalize_filters, false);
    recipe.lr = 0.02;
    recipe.weight_decay = 0.01;
  } else if (options.optimizer == "lars") {
    recipe.lr = 8;
  } else if (options.optimizer == "lamb") {
    recipe.lr = 0.02;
    recipe.weight_decay = 0.01;
  } else if (options.optimizer != "sgd") {
    recipe.lr = 1e-3;
    recipe.weight_decay = options.optimizer == "adamw" ? 0.01 : 0;
  }
  if (options.optimizer == "adam" || options.optimizer == "adamw" || options.optimizer == "lamb") {
    fill(options.adam_betas, "0.9,0.999");
    fill(options.adam_eps, options.optimizer == "lamb" ? 1e-6 : 1e-8);
  }
  if (options.optimizer == "lars") {
    fill(options.momentum, 0.9);
    fill(options.trust_coefficient, 1e-3);
  }
  if (is_muon || options.optimizer == "sgd") {
    fill(options.momentum, is_muon ? 0.95 : 0.9);
    fill(options.nesterov, *options.momentum > 0);
  }
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
  resolve_augmentation(options.augmentation, options.compute);
  fill(options.epochs, options.max_steps > 0 ? 0 : recipe.epochs);
  fill(options.batch_size, recipe.batch_size);
  if (options.lr_rule != "none") fill(options.lr_base_batch, default_batch_size);
  fill(options.lr, recipe.lr);
  fill(options.weight_decay, recipe.weight_decay);
  fill(options.label_smoothing, recipe.label_smoothing);
  fill(options.loss_reduction, "mean");
  fill(options.decay_biases, false);
  fill(options.schedule, "cosine");
  fill(options.freeze, "none");
  const bool has_no_warmup = options.schedule == "constant" || options.schedule == "triangle" ||
                             options.schedule == "one-cycle" || options.schedule == "plateau";
  fill(options.warmup, has_no_warmup ? 0 : recipe.warmup);
  if (options.schedule == "step") fill(options.milestones, "0.5,0.75");
  if (options.schedule == "step" || options.schedule == "plateau") fill(options.gamma, 0.1);
  if (options.schedule == "plateau") fill(options.plateau_patience, 10);
  if (options.schedule == "plateau") fill(options.plateau_threshold, 1e-4);
  if (options.schedule == "exponential") fill(options.gamma, 0.95);
  if (options.schedule == "polynomial") fill(options.power, 0.9);
  fill(options.eval_every, 1);
  fill(options.tta, false);
  if (options.lookahead > 0) fill(options.lookahead_alpha, 0.5);
  fill(options.save_every, 0);
  fill(options.out, "runs/" + options.model + "-" + options.data.dataset);
}

double peak_rate(const TrainOptions& options) {
  if (options.lr_rule == "none") return *options.lr;
  const double factor =
      static_cast<double>(*options.batch_size) / static_cast<double>(*options.lr_base_batch);
  return *options.lr * (options.lr_rule == "linear" ? factor : std::sqrt(factor));
}

std::pair<double, double> adam_betas(const TrainOptions& options) {
  const std::vector<double> betas = parse_numbers(*options.adam_betas);
  const bool is_valid = betas.size() == 2 && std::all_of(betas.begin(), betas.end(),
                                                         [](double beta) { return beta >= 0 && beta < 1; });
  check(is_valid, "--adam-betas: found '{}', expected two numbers from 0 to less than 1, such as 0.9,0.999",
        *options.adam_betas);
  return {betas[0], betas[1]};
}

}  // namespace convoy
