// The defaults in --help of flags whose default depends on other flags, from the defaults of trainings with these.
#include <algorithm>

#include "convoy/apps/train/options/options.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy {
namespace {

/// The values of all flags of a training without other flags than those of `label`, by name.
struct Defaults {
  std::string label;
  std::map<std::string, std::string> values;

  std::string value(const std::string& flag) const {
    const auto found = values.find(flag);
    return found == values.end() ? "" : found->second;
  }
};

Defaults defaults_of(std::string label, TrainOptions options, std::string_view optimizer = "",
                     std::string_view schedule = "") {
  options.optimizer = default_optimizer(options, optimizer);
  options.schedule = default_schedule(options, schedule);
  resolve_recipe(options);
  std::map<std::string, std::string> values = train_command_line(options).values();
  for (auto& [flag, value] : values)  // "0.016666666666666666"
    if (value.size() > 8 && value.find_first_not_of("0123456789.") == std::string::npos)
      value = fmt::format("{:.4g}", std::stod(value));
  return {std::move(label), std::move(values)};
}

/// Returns the defaults of each model, the default one first, with this optimizer and schedule.
std::vector<Defaults> defaults_by_model(std::string_view optimizer = "", std::string_view schedule = "") {
  std::vector<Defaults> all = {defaults_of("", {}, optimizer, schedule)};
  for (const std::string& model : models::names())
    if (model != TrainOptions().model)
      all.push_back(defaults_of(model, {.model = model}, optimizer, schedule));
  return all;
}

/// Labels that have the same text.
struct LabelGroup {
  std::string text;
  std::vector<std::string> labels;
};

void add_to_group(std::vector<LabelGroup>& groups, const std::string& text, const std::string& label) {
  const auto found =
      std::find_if(groups.begin(), groups.end(), [&](const auto& each) { return each.text == text; });
  if (found == groups.end())
    groups.push_back({text, {label}});
  else
    found->labels.push_back(label);
}

/// Returns "lenet 0, speedrun* 0.2": the models whose default is another one than that of the first; "" if there are none.
std::string exceptions_of(const std::string& flag, const std::vector<Defaults>& models) {
  std::vector<LabelGroup> groups;
  for (const Defaults& model : models)
    if (model.value(flag) != models.front().value(flag)) add_to_group(groups, model.value(flag), model.label);
  std::vector<std::string> texts;
  for (const auto& [text, labels] : groups) {
    const std::string& first = labels.front();
    const auto is_of_first = [&](const std::string& each) { return each.starts_with(first); };
    const auto family = std::count_if(models.begin(), models.end(),
                                      [&](const auto& each) { return is_of_first(each.label); });
    const bool is_family = family > 1 && family == std::count_if(labels.begin(), labels.end(), is_of_first) &&
                           family == std::ssize(labels);
    texts.push_back(
        fmt::format("{} {}", is_family ? first + "*" : fmt::format("{}", fmt::join(labels, ", ")), text));
  }
  return fmt::format("{}", fmt::join(texts, ", "));
}

/// The defaults with each alternative of a choice.
struct DefaultsByChoice {
  std::string flag;
  std::vector<std::pair<std::string, std::vector<Defaults>>> alternatives;

  /// Returns "sgd 0.2 (lenet 0.05); adam, adamw 0.001"; "" if the default does not depend on the choice.
  std::string text(const std::string& name, bool is_member) const {
    std::vector<LabelGroup> groups, values;
    for (const auto& [label, models] : alternatives) {
      add_to_group(values, models.front().value(name), label);
      const std::string exceptions = exceptions_of(name, models);
      if (models.front().values.contains(name))
        add_to_group(groups, models.front().value(name) + (exceptions.empty() ? "" : " (" + exceptions + ")"),
                     label);
    }
    if (name == flag || values.size() == 1) return "";
    if (groups.size() == 1 && is_member) return groups.front().text;
    std::vector<std::string> texts;
    for (const auto& [text, labels] : groups)
      texts.push_back(fmt::format("{} {}", fmt::join(labels, ", "), text));
    return fmt::format("{}", fmt::join(texts, "; "));
  }
};

}  // namespace

std::map<std::string, std::string> default_texts() {
  TrainOptions first;
  const CommandLine line = train_command_line(first);
  const std::vector<Defaults> models = defaults_by_model();
  DefaultsByChoice optimizers{.flag = "optimizer", .alternatives = {}},
      schedules{.flag = "schedule", .alternatives = {}};
  for (const std::string& name : names_of(first.optimizer))
    optimizers.alternatives.emplace_back(name, defaults_by_model(name));
  for (const std::string& name : names_of(first.schedule))
    schedules.alternatives.emplace_back(name, defaults_by_model("", name));
  // Other flags, and models on another data set.
  const Defaults mnist = defaults_of("", {.model = "lenet", .data = {.dataset = "mnist"}}),
                 cifar10 = defaults_of("", {.model = "lenet"}), steps = defaults_of("", {.max_steps = 1}),
                 overfit = defaults_of("", {.overfit_batch = true});
  TrainOptions own_images{.data = {.dataset = "folder"}};
  set_default_model(own_images, line);
  const Defaults folder = defaults_of("", own_images);

  std::map<std::string, std::string> texts;
  for (const CommandLine::Flag& flag : line.flags()) {
    const std::string& name = flag.name;
    if (name == "dataset" || name == "out") continue;
    if (name == "model") {  // by which the others are listed
      texts[name] = fmt::format("{}; {} on folder", first.model, folder.value(name));
      continue;
    }
    const bool is_member = !flag.target.owners.empty();
    std::string text = optimizers.text(name, is_member);
    if (text.empty()) text = schedules.text(name, is_member);
    const std::string value = models.front().value(name), exceptions = exceptions_of(name, models);
    if (text.empty()) text = value + (exceptions.empty() ? "" : "; " + exceptions);
    if (name != "augment" && mnist.value(name) != cifar10.value(name))
      text += ", lenet on mnist " + mnist.value(name);
    if (folder.value(name) != value) text += fmt::format("; {} on folder", folder.value(name));
    if (steps.value(name) != value && name != "max-steps")
      text += fmt::format("; {} with --max-steps", steps.value(name));
    if (overfit.value(name) != value && name != "overfit-batch")
      text += fmt::format("; {} with --overfit-batch", overfit.value(name));
    texts[name] = text;
  }
  return texts;
}

}  // namespace convoy
