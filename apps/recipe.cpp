#include <map>

#include "apps/train_options.h"

namespace convoy {
namespace {

struct Recipe {
  std::int64_t epochs;
  std::int64_t batch_size;
  double lr;
  double weight_decay;
  double label_smoothing;
  double warmup;  // share of the steps
};

/// What --help calls the defaults. Rates are those of SGD with momentum 0.9 (Nesterov).
Recipe sgd_recipe(const std::string& model, const std::string& dataset) {
  if (model == "lenet" && dataset == "mnist") return {6, 128, 0.05, 5e-4, 0, 0.1};
  if (model == "lenet") return {10, 128, 0.05, 5e-4, 0, 0.1};
  return {10, 128, 0.2, 5e-4, 0.1, 0.2};
}

}  // namespace

void resolve_recipe(TrainOptions& options) {
  Recipe recipe = sgd_recipe(options.model, options.data.dataset);
  if (options.optimizer != "sgd") {
    recipe.lr = 1e-3;
    recipe.weight_decay = options.optimizer == "adamw" ? 0.01 : 0;
  } else {
    options.momentum = options.momentum.value_or(0.9);
    options.nesterov = options.nesterov.value_or(*options.momentum > 0);
  }
  const auto fill = [](auto& option, auto value) { option = option.value_or(value); };
  if (options.augment == "auto") options.augment.reset();
  if (options.overfit_batch) {
    // One batch again and again: nothing that keeps the loss from reaching zero.
    recipe.label_smoothing = 0;
    recipe.weight_decay = 0;
    recipe.epochs = 200;
    fill(options.augment, std::string("none"));
    // An epoch is one step: there is nothing to evaluate or keep after each.
    fill(options.eval_every, 0);
    fill(options.save_every, recipe.epochs);
  }
  const bool natural = options.data.dataset == "cifar10" || options.data.dataset == "folder";
  fill(options.augment, std::string(natural ? "crop=4,flip" : "none"));
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
