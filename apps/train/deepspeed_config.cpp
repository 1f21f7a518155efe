// --deepspeed-config: the keys of a DeepSpeed configuration as flags (https://www.deepspeed.ai/docs/config-json;
// docs/from-pytorch.md has the table).
// Each key of a file ends in one of three ways: it sets a flag, it is named in a warning, or it is an error, if it
// changes the result in a way that no flag has. Keys without a conversion are rows of tables.
#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <vector>

#include "convoy/apps/common/text.h"
#include "convoy/apps/train/options.h"
#include "convoy/apps/train/tuning/parameter_rules.h"
#include "convoy/comm/bootstrap/environment.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {
namespace {

/// A key that sets one flag. `absent`: the value without the key; empty if the flag then keeps its default.
struct SameMeaning {
  std::string key, flag, absent = "";
};
/// A key and a word on it: the value that Convoy has built in, or what to use instead.
struct KeyNote {
  std::string key, text;
};

const std::vector<SameMeaning> kSameMeaning = {{"gradient_clipping", "clip-norm"},
                                               {"steps_per_print", "log-every"},
                                               {"communication_data_type", "grad-dtype"}};
// The parameters of all optimizers and of some, and the values that DeepSpeed and PyTorch use without them.
const std::vector<SameMeaning> kParameters = {{"lr", "lr", "0.001"}, {"weight_decay", "weight-decay", "0"}};
const std::vector<SameMeaning> kAdamParameters = {{"betas", "adam-betas", "0.9, 0.999"},
                                                  {"eps", "adam-eps", "1e-08"}};
const std::vector<SameMeaning> kSgdParameters = {{"momentum", "momentum", "0"},
                                                 {"nesterov", "nesterov", "false"}};
const std::vector<KeyNote> kBuiltIn = {
    {"scheduler.params.warmup_min_lr", "0"},    {"scheduler.params.warmup_min_ratio", "0"},
    {"scheduler.params.warmup_type", "linear"}, {"fp16.initial_scale_power", "16"},
    {"fp16.loss_scale_window", "2000"},         {"fp16.min_loss_scale", "1"},
};
// Parameters of optimizers with the only value that Convoy has. Another one changes each step, so it is an error.
const std::vector<KeyNote> kOnlyValues = {
    {"bias_correction", "true"},  {"amsgrad", "false"}, {"maximize", "false"},
    {"eps_inside_sqrt", "false"}, {"dampening", "0"},   {"max_grad_norm", "0"},
};
// Keys that are errors unless they are false or absent, and what to use instead. The last two are sections.
const std::vector<KeyNote> kRefused = {
    {"amp.enabled", "fp16.enabled or bf16.enabled instead of Apex"},
    {"zero_optimization.cpu_offload", "false: the optimizer's state stays on its device"},
    {"elasticity.enabled", "false, and convoy-launch --min-ranks for ranks that leave"},
    {"curriculum_learning.enabled", "false: every epoch has all samples"},
    {"data_efficiency.enabled", "false: every epoch has all samples"},
    {"progressive_layer_drop.enabled", "false: every step trains all layers"},
    {"quantize_training.enabled", "false, and bf16 or fp16"},
    {"dataloader_drop_last", "false: the last batch of an epoch is trained too"},
    {"sparse_attention", "none: it changes the network"},
    {"compression_training", "none: it changes the network"},
};
// Parameters of DeepSpeed's Lamb, which limits the trust ratio, and their defaults.
const std::vector<KeyNote> kRatioLimits = {{"optimizer.params.max_coeff", "10"},
                                           {"optimizer.params.min_coeff", "0.01"}};
const std::map<std::string, std::string> kOptimizers = {
    {"adam", "adamw"}, {"adamw", "adamw"}, {"sgd", "sgd"}, {"lamb", "lamb"}};
const std::map<std::string, std::string> kSchedules = {
    {"WarmupLR", "constant"}, {"WarmupDecayLR", "linear"}, {"WarmupCosineLR", "cosine"}};

/// The keys and values of a file, without those that have been taken, and what became of these.
class Translation {
  using Json = nlohmann::ordered_json;

 public:
  Translation(CommandLine& line, std::string file) : line_(line), file_(std::move(file)) {
    std::ifstream input(file_, std::ios::binary);
    if (!input || !std::filesystem::is_regular_file(file_))
      fail<UsageError>("{}: cannot be read, expected a JSON file", file_);
    Json tree;
    try {
      tree = Json::parse(input);
    } catch (const Json::exception& error) {
      const std::string what = error.what();  // "[json.exception.parse_error.101] parse error at line 2, …"
      fail<UsageError>("{}: expected a JSON file, found a {}", file_, what.substr(what.find("] ") + 2));
    }
    if (!tree.is_object())
      fail<UsageError>("{}: found a JSON {}, expected an object of settings", file_, tree.type_name());
    flatten(tree, "");
  }

  /// Returns whether the file has the key, or a key within it.
  bool contains(const std::string& key) const {
    return std::any_of(settings_.begin(), settings_.end(), [&](const KeyNote& each) {
      return each.key == key || each.key.starts_with(key + ".");
    });
  }
  /// Removes the key and returns its value; nullopt if there is none, or if it is "auto" or null.
  std::optional<std::string> take(const std::string& key) {
    const auto found = std::find_if(settings_.begin(), settings_.end(),
                                    [&](const KeyNote& each) { return each.key == key; });
    if (found == settings_.end()) return std::nullopt;
    std::string value = std::move(found->text);
    settings_.erase(found);
    return value == "auto" || value == "null" ? std::nullopt : std::optional(value);
  }
  /// Does the same for a whole number from `minimum` to `maximum`.
  std::optional<std::int64_t> take_count(const std::string& key, double minimum, double maximum = 1e9) {
    const std::optional<std::string> text = take(key);
    if (!text) return std::nullopt;
    const std::vector<double> number = parse_numbers(*text);
    if (number.size() != 1 || number[0] < minimum || number[0] > maximum ||
        number[0] != std::floor(number[0]))
      refuse(key, *text, fmt::format("a whole number from {} to {:.0f}", minimum, maximum));
    return static_cast<std::int64_t>(number[0]);
  }
  /// Does the same for one of some values.
  std::optional<std::string> take_one_of(const std::string& key, const std::set<std::string>& values,
                                         std::string_view expected) {
    std::optional<std::string> text = take(key);
    if (text && !values.contains(*text)) refuse(key, *text, expected);
    return text;
  }
  /// Removes the key and returns whether it is true; reports a key that is false.
  bool take_true(const std::string& key, bool absent = false) {
    const std::optional<std::string> text = take_one_of(key, {"true", "false"}, "true or false");
    if (text == "false") taken_.push_back(key + " false");
    return text ? *text == "true" : absent;
  }
  /// Removes all keys that begin with `prefix`, which have no effect.
  void drop(const std::string& prefix) {
    std::erase_if(settings_, [&](const KeyNote& each) { return each.key.starts_with(prefix); });
  }

  /// Sets a flag, unless it is given, and reports that `key` did.
  void set(const std::string& flag, const std::string& value, const std::string& key) {
    if (line_.set_default(flag, value, fmt::format("{}: {}", file_, key))) {
      set_here_.insert(flag);
      taken_.push_back(fmt::format("{} as --{} {}", key, flag, value));
    } else {
      overridden_.push_back(
          fmt::format("{} by {}", key, set_here_.contains(flag) ? "another key" : "--" + flag));
    }
  }
  void set_all(const std::vector<SameMeaning>& rows, const std::string& section = "") {
    for (const SameMeaning& row : rows) {
      const std::string key = section + row.key;
      const bool is_absent = !contains(key);
      if (const std::optional<std::string> value = take(key))
        set(row.flag, *value, key);
      else if (is_absent && !row.absent.empty() && !line_.given(row.flag))
        set(row.flag, row.absent, key + " (absent)");
    }
  }
  void take_built_in() {
    for (const auto& [key, built_in] : kBuiltIn) {
      const std::optional<std::string> value = take(key);
      if (value == built_in)
        note_taken(key + " " + built_in);
      else if (value)
        note_ignored(fmt::format("{} {} (Convoy has {})", key, *value, built_in));
    }
  }
  void note_taken(std::string text) { taken_.push_back(std::move(text)); }
  void note_ignored(std::string text) { ignored_.push_back(std::move(text)); }
  [[noreturn]] void refuse(std::string_view key, std::string_view found, std::string_view expected) const {
    fail<UsageError>("{}: {}: found {}, expected {}", file_, key, found, expected);
  }

  DeepSpeedReport report() {
    for (const auto& [key, value] : settings_)
      if (value != "auto" && value != "null") note_ignored(key + " " + value);
    if (taken_.empty()) note_taken("nothing");
    const std::string overridden = overridden_.empty() ? "" : "; overridden: ";
    return {.taken = fmt::format("{}: taken: {}{}{}", file_, fmt::join(taken_, ", "), overridden,
                                 fmt::join(overridden_, ", ")),
            .ignored = ignored_.empty() ? ""
                                        : fmt::format("{}: ignored, Convoy has no such setting: {}", file_,
                                                      fmt::join(ignored_, ", "))};
  }

 private:
  /// Appends the values of an object, with nested keys joined by dots and the elements of a list by ", ".
  void flatten(const Json& object, const std::string& prefix) {
    const auto to_text = [](const Json& value) {
      return value.is_string()         ? value.get<std::string>()
             : value.is_number_float() ? fmt::format("{}", value.get<double>())
                                       : json_text(value);
    };
    for (const auto& [key, value] : object.items()) {
      if (value.is_object() && !value.empty())
        flatten(value, prefix + key + ".");
      else if (value.is_array()) {
        std::string text;
        for (const Json& each : value) text += (text.empty() ? "" : ", ") + to_text(each);
        settings_.push_back({prefix + key, text});
      } else
        settings_.push_back({prefix + key, to_text(value)});
    }
  }

  CommandLine& line_;
  std::string file_;
  std::vector<KeyNote> settings_;
  std::vector<std::string> taken_, ignored_, overridden_;
  std::set<std::string> set_here_;
};

/// Sets --batch-size and --micro-batch-size. With n ranks, train_batch_size = train_micro_batch_size_per_gpu x
/// gradient_accumulation_steps x n.
void translate_batch_sizes(const TrainOptions& options, CommandLine& line, Translation& file) {
  const std::optional<dist::Launch> launch = dist::launch_from(dist::environment_variables());
  const std::int64_t ranks = options.job.devices.value_or(launch ? launch->world_size : 1);
  constexpr double kMax = 1 << 20;  // that of --batch-size
  const auto batch = file.take_count("train_batch_size", 1, kMax);
  const auto micro = file.take_count("train_micro_batch_size_per_gpu", 1, kMax);
  const auto accumulation = file.take_count("gradient_accumulation_steps", 1, kMax);
  const std::int64_t parts = accumulation.value_or(1) * ranks, divisor = micro.value_or(1) * parts;
  const std::string factors =
      fmt::format("{}gradient_accumulation_steps {} x {}",
                  micro ? fmt::format("train_micro_batch_size_per_gpu {} x ", *micro) : "",
                  accumulation.value_or(1), counted(ranks, "rank"));
  const bool is_exact = micro && accumulation;
  if (batch && (is_exact ? *batch != divisor : *batch % divisor != 0))
    file.refuse("train_batch_size", fmt::format("{}", *batch),
                fmt::format("{}{} ({})", is_exact ? "" : "a multiple of ", divisor, factors));
  if (batch || micro)
    file.set("batch-size", fmt::format("{}", batch.value_or(divisor)), batch ? "train_batch_size" : factors);
  if (accumulation == 1) return file.note_taken("gradient_accumulation_steps 1");
  line.settle();  // the default batch size depends on the optimizer
  TrainOptions resolved = options;
  resolve_recipe(resolved);
  if (accumulation)
    file.set("micro-batch-size", fmt::format("{}", (*resolved.batch_size + parts - 1) / parts),
             fmt::format("gradient_accumulation_steps {}", *accumulation));
  else if (micro && batch)
    file.set("micro-batch-size", fmt::format("{}", *micro), "train_micro_batch_size_per_gpu");
}

void translate_precision(const TrainOptions& options, Translation& file) {
  const std::string bf16 = file.contains("bfloat16") ? "bfloat16.enabled" : "bf16.enabled";
  const bool is_fp16 = file.take_true("fp16.enabled"), is_bf16 = file.take_true(bf16);
  if (is_fp16 && is_bf16) file.refuse("fp16.enabled", "true, and bf16.enabled true", "one of the two");
  if (is_bf16) file.set("precision", "bf16", bf16);
  if (!is_fp16) return file.drop("fp16.");
  file.set("precision", "fp16", "fp16.enabled");
  const auto scale = options.precision == "fp16" ? file.take("fp16.loss_scale") : std::nullopt;
  if (scale) file.set("loss-scale", *scale == "0" ? "dynamic" : *scale, "fp16.loss_scale");
}

/// Sets the schedule, and the rate of schedules that replace that of the optimizer.
void translate_scheduler(const TrainOptions& options, const CommandLine& line, Translation& file) {
  const std::string section = "scheduler.params.", key = section + "warmup_num_steps";
  const std::string type = file.take("scheduler.type").value_or("");
  if (type.empty()) return;
  const auto schedule = kSchedules.find(type);
  if (schedule == kSchedules.end())
    file.refuse(
        "scheduler.type", type,
        "WarmupLR, WarmupDecayLR or WarmupCosineLR, or none and --schedule (see convoy-train --help)");
  file.set("schedule", schedule->second, "scheduler.type " + type);
  if (line.given_text("schedule") != schedule->second) return;  // the parameters are those of another one
  if (type != "WarmupCosineLR") file.set_all({{"warmup_max_lr", "lr", "0.001"}}, section);
  if (!options.epochs)
    file.set_all({{"total_num_steps", "max-steps"}}, section);  // else the schedule ends with it
  if (!file.contains(section + "warmup_type"))
    file.note_ignored(section + "warmup_type log, the default (Convoy has linear)");
  const bool is_auto = file.contains(key);
  const auto warmup = file.take_count(key, 0);
  if (warmup || !is_auto)  // 1,000 steps are DeepSpeed's default
    file.set("warmup", fmt::format("{}steps", warmup.value_or(1000)), key);
}

/// Sets the minimum of the cosine schedule, which DeepSpeed gives as a fraction of the optimizer's rate.
void translate_minimum(const TrainOptions& options, const CommandLine& line, Translation& file) {
  const std::string key = "scheduler.params.cos_min_ratio", text = file.take(key).value_or("");
  if (text.empty()) return;
  const std::vector<double> ratio = parse_numbers(text);
  if (ratio.size() != 1 || ratio[0] < 0 || ratio[0] > 1) file.refuse(key, text, "a number from 0 to 1");
  if (line.given_text("schedule") == "cosine" && options.lr)
    file.set("min-lr", fmt::format("{}", ratio[0] * *options.lr), key + " " + text);
  else
    file.note_ignored(fmt::format("{} {} (expected --schedule cosine and optimizer.params.lr)", key, text));
}

void translate_optimizer(const TrainOptions& options, const CommandLine& line, Translation& file) {
  const std::string section = "optimizer.params.", type = file.take("optimizer.type").value_or("");
  if (type.empty()) return;
  std::string name = type;
  for (char& c : name) c = static_cast<char>(std::tolower(c));
  if (!kOptimizers.contains(name))
    file.refuse("optimizer.type", type, "Adam, AdamW, SGD or Lamb; gradients are not compressed to one bit");
  // DeepSpeed's Adam decays weights as AdamW does, unless adam_w_mode is false.
  const bool is_decoupled = file.take_true(section + "adam_w_mode", true);
  const std::string optimizer = name == "adam" && !is_decoupled ? "adam" : kOptimizers.at(name);
  file.set("optimizer", optimizer, "optimizer.type " + type);
  if (line.given_text("optimizer") != optimizer) return;  // the parameters are those of another one
  for (const auto& [key, only] : kOnlyValues) {
    const std::optional<std::string> value = file.take(section + key);
    if (!value) continue;
    if (*value != only && !(only == "0" && parse_numbers(*value) == std::vector<double>{0}))
      file.refuse(section + key, *value,
                  fmt::format("{}, the only value that --optimizer {} has{}", only, optimizer,
                              key == "max_grad_norm" ? "; use gradient_clipping" : ""));
    file.note_taken(section + key + " " + only);
  }
  file.set_all(kParameters, section);
  file.set_all(name == "sgd" ? kSgdParameters : kAdamParameters, section);
  if (name == "lamb") {
    for (const auto& [key, limit] : kRatioLimits) {
      file.take_one_of(key, {limit}, limit + " or no such key: --optimizer lamb does not limit trust ratios");
      file.note_ignored(fmt::format("{} {} (Convoy has no limit)", key, limit));
    }
    file.note_ignored("the trust ratios of biases and norms (Convoy has 1)");
  }
  // PyTorch decays all parameters.
  if (options.weight_decay.value_or(0) > 0) file.set("decay-biases", "true", section + "weight_decay");
}

}  // namespace

DeepSpeedReport apply_deepspeed_config(const TrainOptions& options, CommandLine& line) {
  Translation file(line, options.deepspeed_config);
  for (const auto& [key, use] : kRefused) {
    const bool is_section = use.starts_with("none");
    if (is_section ? file.contains(key) : file.take_true(key))
      file.refuse(key, is_section ? "a section" : "true", use);
  }
  translate_precision(options, file);
  for (const char* part :
       {"zero_optimization.offload_optimizer.device", "zero_optimization.offload_param.device"})
    file.take_one_of(part, {"none"}, "none; --zero 1 or 2 divides the optimizer's state over the ranks");
  const char* const stages =
      "0, 1 or 2: Convoy divides the optimizer's state (1) and the gradients (2) over the ranks, not the parameters";
  if (const auto stage = file.take_one_of("zero_optimization.stage", {"0", "1", "2"}, stages))
    file.set("zero", *stage, "zero_optimization.stage");
  translate_scheduler(options, line, file);
  translate_optimizer(options, line, file);
  translate_minimum(options, line, file);
  translate_batch_sizes(options, line, file);
  file.set_all(kSameMeaning);
  file.take_built_in();
  return file.report();
}

}  // namespace convoy
