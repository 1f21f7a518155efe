// The keys of DeepSpeed's configuration.
#include <algorithm>
#include <array>
#include <cctype>
#include <utility>

#include "convoy/apps/train/interop/translate.h"
#include "convoy/apps/train/tuning/parameter_rules.h"
#include "convoy/comm/bootstrap/environment.h"
#include "convoy/kernels/base/check.h"

namespace convoy::interop {
namespace {

// ---- The tables. A new flag for a key is a row of kSameMeaning or of one of the optimizers, in place of its row in
// kBuiltIn.
constexpr std::array kSameMeaning = {
    SameMeaning{"gradient_clipping", "clip-norm"},
    SameMeaning{"steps_per_print", "log-every"},
    SameMeaning{"communication_data_type", "grad-dtype"},
};
// The parameters of the optimizers, and the values that DeepSpeed and PyTorch use without them.
constexpr std::array kAdamParameters = {
    SameMeaning{"optimizer.params.lr", "lr", "0.001"},
    SameMeaning{"optimizer.params.betas", "adam-betas", "0.9, 0.999"},
    SameMeaning{"optimizer.params.eps", "adam-eps", "1e-08"},
    SameMeaning{"optimizer.params.weight_decay", "weight-decay", "0"},
};
constexpr std::array kSgdParameters = {
    SameMeaning{"optimizer.params.lr", "lr", "0.001"},
    SameMeaning{"optimizer.params.momentum", "momentum", "0"},
    SameMeaning{"optimizer.params.nesterov", "nesterov", "false"},
    SameMeaning{"optimizer.params.weight_decay", "weight-decay", "0"},
};
constexpr std::array kBuiltIn = {
    BuiltIn{"optimizer.params.bias_correction", "true"}, BuiltIn{"optimizer.params.amsgrad", "false"},
    BuiltIn{"optimizer.params.dampening", "0"},          BuiltIn{"optimizer.params.eps_inside_sqrt", "false"},
    BuiltIn{"scheduler.params.warmup_min_lr", "0"},      BuiltIn{"scheduler.params.warmup_min_ratio", "0"},
    BuiltIn{"scheduler.params.warmup_type", "linear"},   BuiltIn{"fp16.initial_scale_power", "16"},
    BuiltIn{"fp16.loss_scale_window", "2000"},           BuiltIn{"fp16.min_loss_scale", "1"},
};
/// A key that is an error if it is true, and what to use.
struct Refused {
  std::string_view key, use;
};
constexpr std::array kRefused = {
    Refused{"amp.enabled", "fp16.enabled or bf16.enabled instead of Apex"},
    Refused{"zero_optimization.cpu_offload", "false: the optimizer's state stays on its device"},
    Refused{"elasticity.enabled", "false, and convoy-launch --min-ranks for ranks that leave"},
    Refused{"curriculum_learning.enabled", "false: every epoch has all samples"},
    Refused{"data_efficiency.enabled", "false: every epoch has all samples"},
    Refused{"progressive_layer_drop.enabled", "false: every step trains all layers"},
    Refused{"quantize_training.enabled", "false, and bf16 or fp16"},
};
/// Sections that change the network, so that they are errors.
constexpr std::array kRefusedSections = {"sparse_attention", "compression_training"};

/// A parameter of DeepSpeed's Lamb, which limits the trust ratio.
struct RatioLimit {
  std::string_view key, absent;  // the second: DeepSpeed's default
};
constexpr std::array kRatioLimits = {RatioLimit{"optimizer.params.max_coeff", "10"},
                                     RatioLimit{"optimizer.params.min_coeff", "0.01"}};

std::string lower_case(std::string text) {
  for (char& c : text) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return text;
}

std::int64_t whole_quotient(const Translation& file, std::int64_t batch, std::int64_t divisor,
                            std::string_view what) {
  if (batch % divisor != 0)
    file.refuse("train_batch_size", fmt::format("{}", batch),
                fmt::format("a multiple of {} ({})", divisor, what));
  return batch / divisor;
}

void translate_precision(const TrainOptions& options, Translation& file) {
  const std::string bf16_section = file.contains("bfloat16") ? "bfloat16" : "bf16";
  const bool fp16 = file.take_true("fp16.enabled"), bf16 = file.take_true(bf16_section + ".enabled");
  if (fp16 && bf16) file.refuse("fp16.enabled", "true, and bf16.enabled true", "one of the two");
  if (bf16) file.set("precision", "bf16", bf16_section + ".enabled");
  if (!fp16) return file.drop("fp16.");
  file.set("precision", "fp16", "fp16.enabled");
  if (options.precision != "fp16") return;  // the scale is for fp16
  if (const auto scale = file.take("fp16.loss_scale"))
    file.set("loss-scale", *scale == "0" ? "dynamic" : *scale, "fp16.loss_scale");
}

/// Sets the schedule, and the rate of schedules that replace that of the optimizer.
void translate_scheduler(const TrainOptions& options, Translation& file) {
  const std::optional<std::string> type = file.take("scheduler.type");
  if (!type) return;
  constexpr std::array<std::pair<std::string_view, const char*>, 3> kSchedules = {
      {{"WarmupLR", "constant"}, {"WarmupDecayLR", "linear"}, {"WarmupCosineLR", "cosine"}}};
  const auto schedule =
      std::find_if(kSchedules.begin(), kSchedules.end(), [&](const auto& row) { return row.first == *type; });
  if (schedule == kSchedules.end())
    file.refuse(
        "scheduler.type", *type,
        "WarmupLR, WarmupDecayLR or WarmupCosineLR, or none and --schedule (see convoy-train --help)");
  file.set("schedule", schedule->second, "scheduler.type " + *type);
  if (options.schedule != schedule->second) return;  // the parameters are those of another one
  const std::array max_rate = {SameMeaning{"scheduler.params.warmup_max_lr", "lr", "0.001"}};
  if (*type != "WarmupCosineLR") file.set_all(max_rate);
  const std::optional<std::int64_t> total = file.take_count("scheduler.params.total_num_steps");
  if (total && options.epochs)
    file.note_ignored(fmt::format("scheduler.params.total_num_steps {} (the schedule ends with --epochs {})",
                                  *total, *options.epochs));
  else if (total)
    file.set("max-steps", fmt::format("{}", *total), "scheduler.params.total_num_steps");
  if (!file.contains("scheduler.params.warmup_type"))
    file.note_ignored("scheduler.params.warmup_type log, the default (Convoy has linear)");
  const std::string key = "scheduler.params.warmup_num_steps";
  const bool is_auto = file.contains(key);
  const std::optional<std::int64_t> given = file.take_count(key, 0);
  if (!given && is_auto) return;
  const std::int64_t warmup = given.value_or(1000);  // DeepSpeed's default
  file.set("warmup", fmt::format("{}steps", warmup), fmt::format("{} {}", key, warmup));
}

/// Sets the minimum of the cosine schedule, which DeepSpeed gives as a fraction of the optimizer's rate.
void translate_minimum(const TrainOptions& options, Translation& file) {
  const std::string key = "scheduler.params.cos_min_ratio";
  const std::optional<std::string> text = file.take(key);
  if (!text) return;
  const std::vector<double> ratio = parse_numbers(*text);
  if (ratio.size() != 1 || ratio[0] < 0 || ratio[0] > 1) file.refuse(key, *text, "a number from 0 to 1");
  if (options.schedule != "cosine")
    file.note_ignored(
        fmt::format("{} {} (found --schedule {})", key, *text, options.schedule.value_or("none")));
  else if (!options.lr)
    file.note_ignored(
        fmt::format("{} {} (no rate to take a fraction of: add optimizer.params.lr)", key, *text));
  else
    file.set("min-lr", fmt::format("{}", ratio[0] * *options.lr), fmt::format("{} {}", key, *text));
}

/// Takes the limits of the trust ratio, which Convoy's LAMB does not have. Other limits than the defaults are errors.
void translate_ratio_limits(Translation& file) {
  for (const auto& [key, absent] : kRatioLimits) {
    const std::string limit = file.take(key).value_or(std::string(absent));
    if (limit != absent)
      file.refuse(key, limit,
                  fmt::format("{} or no such key: --optimizer lamb does not limit trust ratios", absent));
    file.note_ignored(fmt::format("{} {} (Convoy has no limit)", key, limit));
  }
  file.note_ignored("the trust ratios of biases and norms (Convoy has 1)");
}

void translate_optimizer(const TrainOptions& options, Translation& file) {
  const std::optional<std::string> type = file.take("optimizer.type");
  if (!type) return;
  const std::string name = lower_case(*type);
  if (name == "onebitadam" || name == "zerooneadam" || name == "onebitlamb")
    file.refuse(
        "optimizer.type", *type,
        fmt::format("{}: Convoy does not compress gradients to one bit; --grad-dtype bf16 halves them",
                    name == "onebitlamb" ? "Lamb" : "AdamW"));
  if (name != "adam" && name != "adamw" && name != "sgd" && name != "lamb")
    file.refuse("optimizer.type", *type, "Adam, AdamW, SGD or Lamb");
  // DeepSpeed's Adam decays weights as AdamW does, unless adam_w_mode is false.
  const bool decoupled = file.take_bool("optimizer.params.adam_w_mode").value_or(true);
  const std::string optimizer = name == "sgd" || name == "lamb" ? name
                                : name == "adam" && !decoupled  ? "adam"
                                                                : "adamw";
  file.set("optimizer", optimizer, "optimizer.type " + *type);
  if (options.optimizer != optimizer) return;  // the parameters are those of another one
  if (name == "sgd")
    file.set_all(kSgdParameters);
  else
    file.set_all(kAdamParameters);
  if (name == "lamb") translate_ratio_limits(file);
  // PyTorch decays all parameters.
  if (options.weight_decay.value_or(0) > 0) file.set("decay-biases", "true", "optimizer.params.weight_decay");
}

}  // namespace

std::int64_t rank_count(const TrainOptions& options) {
  if (options.job.devices) return *options.job.devices;
  const std::optional<dist::Launch> launch = dist::launch_from(dist::environment_variables());
  return launch ? launch->world_size : 1;
}

void set_accumulation(const TrainOptions& options, Translation& file, std::int64_t accumulation,
                      std::string_view key) {
  if (accumulation == 1) return file.note_taken(fmt::format("{} 1", key));
  TrainOptions resolved = options;
  resolve_recipe(resolved);
  const std::int64_t parts = accumulation * rank_count(options);
  file.set("micro-batch-size", fmt::format("{}", (*resolved.batch_size + parts - 1) / parts),
           fmt::format("{} {}", key, accumulation));
}

void translate_batch_sizes(const TrainOptions& options, Translation& file) {
  const std::int64_t ranks = rank_count(options);
  const std::string of_ranks = fmt::format("{} {}", ranks, ranks == 1 ? "rank" : "ranks");
  constexpr std::int64_t kMax = 1 << 20;  // that of --batch-size
  const std::optional<std::int64_t> batch = file.take_count("train_batch_size", 1, kMax);
  const std::optional<std::int64_t> micro = file.take_count("train_micro_batch_size_per_gpu", 1, kMax);
  const std::optional<std::int64_t> accumulation = file.take_count("gradient_accumulation_steps", 1, kMax);
  const std::string micro_text = fmt::format("train_micro_batch_size_per_gpu {}", micro.value_or(0));
  const std::string accumulation_text =
      fmt::format("gradient_accumulation_steps {}", accumulation.value_or(1));
  if (batch && micro && accumulation && *batch != *micro * *accumulation * ranks)
    file.refuse("train_batch_size", fmt::format("{}", *batch),
                fmt::format("{}: {} x {} x {}", *micro * *accumulation * ranks, micro_text, accumulation_text,
                            of_ranks));
  if (batch && micro)
    whole_quotient(file, *batch, *micro * ranks, micro_text + " x " + of_ranks);
  else if (batch)
    whole_quotient(file, *batch, accumulation.value_or(1) * ranks, accumulation_text + " x " + of_ranks);
  if (batch)
    file.set("batch-size", fmt::format("{}", *batch), "train_batch_size");
  else if (micro)
    file.set("batch-size", fmt::format("{}", *micro * accumulation.value_or(1) * ranks),
             fmt::format("{} x {} x {}", micro_text, accumulation_text, of_ranks));
  if (accumulation)
    set_accumulation(options, file, *accumulation, "gradient_accumulation_steps");
  else if (micro && batch)
    file.set("micro-batch-size", fmt::format("{}", *micro), "train_micro_batch_size_per_gpu");
}

void translate_zero_stage(Translation& file, std::string_view key) {
  const std::optional<std::string> stage = file.take(key);
  if (!stage) return;
  if (*stage != "0" && *stage != "1" && *stage != "2")
    file.refuse(
        key, *stage,
        "0, 1 or 2: Convoy divides the optimizer's state (1) and the gradients (2) over the ranks, not the "
        "parameters");
  file.set("zero", *stage, key);
}

void translate_deepspeed(const TrainOptions& options, Translation& file) {
  for (const auto& [key, use] : kRefused)
    if (file.take_true(key)) file.refuse(key, "true", use);
  for (const char* section : kRefusedSections)
    if (file.contains(section)) file.refuse(section, "a section", "none: it changes the network");
  for (const std::string part : {"offload_optimizer", "offload_param"}) {
    const std::string key = "zero_optimization." + part + ".device";
    if (const auto device = file.take(key); device && *device != "none")
      file.refuse(key, *device, "none; --zero 1 or 2 divides the optimizer's state over the ranks");
  }
  translate_batch_sizes(options, file);
  translate_precision(options, file);
  translate_zero_stage(file, "zero_optimization.stage");
  translate_scheduler(options, file);
  translate_optimizer(options, file);
  translate_minimum(options, file);
  file.set_all(kSameMeaning);
  file.check_built_in(kBuiltIn);
}

}  // namespace convoy::interop
