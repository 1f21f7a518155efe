// The default hyperparameters, which depend on the model, data set and optimizer.
#include <algorithm>
#include <array>
#include <string_view>

#include "convoy/apps/train/options.h"
#include "convoy/datasets/formats/registry.h"

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

}  // namespace

void resolve_recipe(TrainOptions& options) {
  Recipe recipe = sgd_recipe(options.model, options.data.dataset);
  const auto fill = [](auto& option, auto value) { option = option.value_or(value); };
  const bool is_muon = options.optimizer == "muon";
  if (is_muon) {
    fill(options.sgd_lr, recipe.lr);  // of the parameters that Muon leaves to SGD
    recipe.lr = 0.02;
    recipe.weight_decay = 0.01;
  } else if (options.optimizer != "sgd") {
    recipe.lr = 1e-3;
    recipe.weight_decay = options.optimizer == "adamw" ? 0.01 : 0;
  }
  if (is_muon || options.optimizer == "sgd") {
    fill(options.momentum, is_muon ? 0.95 : 0.9);
    fill(options.nesterov, *options.momentum > 0);
  }
  if (options.augment == "auto") options.augment.reset();
  if (options.overfit_batch) {
    // The same batch in each step: disable everything that keeps the loss above zero.
    recipe.label_smoothing = 0;
    recipe.weight_decay = 0;
    recipe.epochs = 200;
    fill(options.augment, std::string("none"));
    // An epoch is one step: evaluate and save only at the end.
    fill(options.eval_every, 0);
    fill(options.save_every, recipe.epochs);
  }
  const bool natural_images = data::find_dataset(options.data.dataset).natural_images;
  fill(options.augment, std::string(natural_images ? "crop=4,flip" : "none"));
  fill(options.epochs, options.max_steps > 0 ? 0 : recipe.epochs);
  fill(options.batch_size, recipe.batch_size);
  fill(options.lr, recipe.lr);
  fill(options.weight_decay, recipe.weight_decay);
  fill(options.label_smoothing, recipe.label_smoothing);
  fill(options.schedule, std::string("cosine"));
  fill(options.warmup, options.schedule == "constant" || options.schedule == "triangle" ? 0 : recipe.warmup);
  fill(options.eval_every, 1);
  fill(options.save_every, 0);
  fill(options.out, "runs/" + options.model + "-" + options.data.dataset);
}

}  // namespace convoy
