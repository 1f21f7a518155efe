#include "convoy/apps/train/options/options.h"

#include <algorithm>

#include "convoy/apps/common/text.h"
#include "convoy/apps/flags/config_file.h"
#include "convoy/apps/ranks/local_ranks.h"
#include "convoy/apps/train/options/learning_rates.h"
#include "convoy/apps/train/tuning/parameter_rules.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy {
namespace {

constexpr double kMaxLossScale = 1 << 24;

void check_schedule(const TrainOptions& o) {
  const double min_lr = min_lr_of(*o.schedule);
  check(min_lr <= *o.lr, "--min-lr {}: expected at most the peak rate, {}", min_lr, *o.lr);
  if (const auto* const step = std::get_if<StepSchedule>(&*o.schedule)) parse_milestones(step->milestones);
  const auto* const plateau = std::get_if<PlateauSchedule>(&*o.schedule);
  if (plateau == nullptr) return;
  check(plateau->gamma < 1, "--gamma {}: found --schedule plateau, expected less than 1", plateau->gamma);
  check(*o.eval_every > 0 || o.data.validation == "none",
        "--schedule plateau: found --validation {} and --eval-every 0, expected at least 1",
        o.data.validation);
}

void check_optimizer(const TrainOptions& o) {
  const std::string name = to_string(*o.optimizer);
  std::visit(
      [&](const auto& chosen) {
        if constexpr (requires { chosen.nesterov; })
          check(!*chosen.nesterov || chosen.momentum > 0,
                "--nesterov: found --momentum 0, expected more than 0");
      },
      *o.optimizer);
  check(
      o.zero == 0 || name != "muon",
      "--zero {}: not supported with --optimizer {}, which needs whole parameters; expected --zero 0, or sgd, adam, "
      "adamw or rmsprop",
      o.zero, name);
  check(name != "muon" || *o.lr > 0, "--lr {}: found --optimizer muon, expected more than 0", *o.lr);
  check(!o.bias_lr || *o.lr > 0, "--bias-lr {}: found --lr 0, expected more than 0", o.bias_lr.value_or(0));
}

/// Checks --batch-size auto.
void check_batch_search(const TrainOptions& o, const CommandLine& line) {
  if (!o.finds_batch_size) return;
  check(!line.given("resume"),
        "--batch-size auto: found --resume, whose training has its size, expected one of the two");
  check(o.micro_batch_size == 0,
        "--batch-size auto: found --micro-batch-size {}, which decides the memory, expected 0",
        o.micro_batch_size);
  check(o.repeat == 1, "--batch-size auto: found --repeat {}, whose trainings have the same size, expected 1",
        o.repeat);
  check(!o.overfit_batch, "--batch-size auto: found --overfit-batch, expected a number");
}

/// Checks --lr find, which tries the rate of all parameters at once, in steps of the training itself.
void check_rate_search(const TrainOptions& o, const CommandLine& line) {
  if (!o.finds_lr) return;
  const std::string optimizer = to_string(*o.optimizer);
  check(optimizer != "muon" && !o.bias_lr,
        "--lr find: found {}, whose parameters have several rates, expected another --optimizer, or a rate",
        optimizer == "muon" ? "--optimizer muon" : "--bias-lr");
  for (const RateRule& rule : parse_rate_rules(o.lr_for))
    check(rule.is_factor, "--lr find: found --lr-for {}={}, expected a factor such as 10x", rule.prefix,
          rule.value);
  check(!line.given("resume"),
        "--lr find: found --resume, whose training has its rate, expected one of the two");
  check(o.repeat == 1, "--lr find: found --repeat {}, whose trainings have the same rate, expected 1",
        o.repeat);
}

void check_augmentation(const TrainOptions& o) {
  const auto& [random_erasing, mixup, cutmix] = o.augmentation;
  const bool is_original = data::make_transform(*o.augment, {}).original.enabled();
  check(
      !is_original || !o.compute.data_on_device.value_or(false),
      "--augment {}: found --data-on-device, expected --no-data-on-device: the CPU decodes the original images",
      *o.augment);
  check(!is_original || (o.data.dataset != "mnist" && o.data.dataset != "shapes"),
        "--augment {}: found --dataset {}, whose images have no files, expected a directory of images",
        *o.augment, o.data.dataset);
  for (const auto& [name, value] :
       {std::pair("mixup", mixup), std::pair("cutmix", cutmix), std::pair("random-erasing", random_erasing)})
    check(value == 0 || !o.overfit_batch, "--{} {}: found --overfit-batch, expected 0", name, value);
}

}  // namespace

void add_model_flags(CommandLine& line, TrainOptions& o) {
  line.add("model", &o.model, "Network", {.value = "NAME", .choices = models::names(), .fixed = true});
  line.add("stem", &o.stem,
           "First layers of resnet18 to resnet101; auto selects cifar for images of up to 64 pixels per "
           "side, else imagenet",
           {.value = "NAME", .choices = {"auto", "cifar", "imagenet"}, .fixed = true, .advanced = true});
}

void add_batch_flags(CommandLine& line, TrainOptions& o, bool has_auto) {
  FlagDetails size{.value = has_auto ? "N|auto" : "N", .minimum = 1, .maximum = 1 << 20, .fixed = true};
  if (has_auto) size.word = {"auto", &o.finds_batch_size};
  line.add("batch-size", &o.batch_size, "Global batch size (samples)", std::move(size));
  line.add("micro-batch-size", &o.micro_batch_size,
           "Micro-batch size (samples) for gradient accumulation; 0: the whole batch at once",
           {.value = "N",
            .minimum = 0,
            .maximum = 1 << 20,
            .start = {"batch", "in micro-batches of {}"},
            .advanced = true});
  line.add("optimizer",
           choice_of(o.optimizer, [&o](std::string_view name) { return default_optimizer(o, name); }),
           "Optimizer", {.value = "NAME", .choices = names_of(o.optimizer), .fixed = true});
}

void add_augmentation_flags(CommandLine& line, AugmentationOptions& options) {
  line.add("random-erasing", &options.random_erasing,
           "Probability that a random box of an image is set to the mean color",
           {.value = "P", .minimum = 0, .maximum = 1, .fixed = true, .advanced = true});
  line.add("mixup", &options.mixup, "Parameter of mixup's distribution Beta(ALPHA, ALPHA); 0: no mixup",
           {.value = "ALPHA", .minimum = 0, .maximum = 1000, .fixed = true, .advanced = true});
  line.add(
      "cutmix", &options.cutmix,
      "Parameter of CutMix's distribution Beta(ALPHA, ALPHA), with --mixup in half of the steps; 0: no CutMix",
      {.value = "ALPHA", .minimum = 0, .maximum = 1000, .fixed = true, .advanced = true});
}

void apply_augmentation(const AugmentationOptions& options, data::TransformSpec& transform) {
  transform.augment.random_erasing = static_cast<float>(options.random_erasing);
  transform.mixing = {.mixup = options.mixup, .cutmix = options.cutmix};
}

std::map<std::string, std::string> default_texts() {
  std::map<std::string, std::string> texts;
  const auto add = [&](std::string_view optimizer, std::string_view schedule) {
    TrainOptions options;
    options.optimizer = default_optimizer(options, optimizer);
    options.schedule = default_schedule(options, schedule);
    resolve_recipe(options);
    for (auto [flag, value] : train_command_line(options).values()) {
      if (value.size() > 8 && value.find_first_not_of("0123456789.") == std::string::npos)
        value = fmt::format("{:.4g}", std::stod(value));
      texts.emplace(flag, value);
    }
  };
  add("", "");
  for (const std::string& name : names_of(TrainOptions().optimizer)) add(name, "");
  for (const std::string& name : names_of(TrainOptions().schedule)) add("", name);
  texts.erase("dataset");
  texts.erase("out");
  return texts;
}

CommandLine train_command_line(TrainOptions& o, const std::string& program) {
  CommandLine line(
      program,
      "Trains an image classifier; without flags, ResNet-20 on CIFAR-10, whose defaults are listed. Those "
      "of other models and data sets are in config.toml, which a training writes to the output directory "
      "with checkpoints and log.jsonl.");
  line.show_defaults(default_texts);
  // The order of the groups in the help. Flags that programs share are added to these by functions.
  for (const char* title : {"Model", "Data", "Optimizer and schedule", "Precision and device", "Distributed",
                            "Checkpoints and logging", "Debugging", "Other"})
    line.group(title);

  line.group("Model");
  add_model_flags(line, o);
  line.add("activation", &o.activation,
           "Activation of the speedrun networks; auto: that of --init-from, else gelu",
           {.value = "NAME", .choices = {"auto", "gelu", "silu"}, .fixed = true, .advanced = true});
  line.add("init-from", &o.init_from,
           "Initial parameters: safetensors file, checkpoint or run; new last layer for other classes",
           {.value = "FILE|DIR"});
  line.add(
      "activation-checkpointing", &o.activation_checkpointing,
      "Residual blocks computed again in the backward pass, instead of keeping their activations in memory",
      {.start = {"batch", "activations of residual blocks computed again"}, .advanced = true});
  line.add("summary", &o.summary, "Print layers, shapes, parameters and FLOPs, and exit",
           {.advanced = true, .in_config = false});

  add_data_flags(line, o.data);
  line.add("fallback-shapes", &o.data.fallback_shapes,
           "Generated shapes data set if the data set is neither found nor downloaded", {.advanced = true});
  line.add("augment", &o.augment,
           "Augmentation: auto, none, or a list such as crop=4,flip,jitter; a wrong name lists all",
           {.value = "LIST", .default_text = "auto: for photographs mostly crop=4,flip", .fixed = true});
  add_augmentation_flags(line, o.augmentation);
  line.group("Data", {.fixed = true, .advanced = true});
  line.add(
      "class-weights", &o.class_weights,
      "Weights of the classes in the loss: none, balanced (all classes count the same), or a file with a weight and a "
      "class per line",
      {.value = "balanced|FILE", .start = {"optimizer", "class weights {}"}});
  line.add(
      "sampling", &o.sampling,
      "Samples of an epoch: each image once, or balanced: the same number of each class, whose images may repeat",
      {.value = "NAME", .choices = {"uniform", "balanced"}});
  line.add(
      "validation", &o.data.validation,
      "Training images held out for evaluations during the training: none, a percentage such as 10%, or a number; "
      "the test images are then evaluated once, at the end; none: the images of a directory val/ next to train/ and "
      "test/, if there is one",
      {.value = "PART"});

  line.group("Debugging");
  line.add("overfit-batch", &o.overfit_batch,
           "Training on the first batch only; the loss of a correct setup approaches 0",
           {.fixed = true, .advanced = true});

  line.group("Optimizer and schedule");
  line.add("epochs", &o.epochs, "Epochs; 0: until --max-steps",
           {.value = "N", .minimum = 0, .maximum = 1e6, .reschedules = true});
  line.add("max-steps", &o.max_steps, "Maximum number of steps; 0: no limit",
           {.value = "N", .minimum = 0, .reschedules = true});
  add_batch_flags(line, o, /*has_auto=*/true);

  line.add("lr", &o.lr, "Peak learning rate; find: by a range test",
           {.value = "RATE|find",
            .default_note = "follows --batch-size",
            .minimum = 0,
            .word = {"find", &o.finds_lr},
            .reschedules = true});
  line.group("Optimizer and schedule", {.fixed = true, .advanced = true});
  line.add("sgd-lr", member_of("optimizer", o.optimizer, &MuonOptions::sgd_lr),
           "Peak learning rate of the parameters that muon leaves to SGD: biases, norms and the last weight",
           {.value = "RATE",
            .above = 0,
            .start = {"optimizer", "SGD with peak {} for other parameters"},
            .reschedules = true});
  line.add("bias-lr", &o.bias_lr, "Peak learning rate of biases and norms",
           {.value = "RATE",
            .default_note = "else that of --lr",
            .above = 0,
            .start = {"optimizer", "rate of biases and norms {}"},
            .reschedules = true});
  line.add("sgd-momentum", member_of("optimizer", o.optimizer, &MuonOptions::sgd_momentum),
           "Nesterov momentum of the parameters that muon leaves to SGD",
           {.value = "M", .minimum = 0, .below = 1, .start = {"optimizer", "momentum of SGD {}"}});
  line.add("ns-steps", member_of("optimizer", o.optimizer, &MuonOptions::ns_steps),
           "Newton-Schulz iterations of muon", {.value = "N", .minimum = 1, .maximum = 99});
  line.add("normalize-filters", member_of("optimizer", o.optimizer, &MuonOptions::normalize_filters),
           "Filters rescaled to a constant norm by muon, instead of a decay; for filters in front of a norm");
  line.add("adam-betas", member_of("optimizer", o.optimizer, &AdamOptions::betas, &AdamWOptions::betas),
           "Decays of the moments of adam and adamw", {.value = "B1,B2", .minimum = 0, .below = 1});
  line.add("adam-eps",
           member_of("optimizer", o.optimizer, &AdamOptions::eps, &AdamWOptions::eps, &RmspropOptions::eps),
           "Constant in the denominator of adam, adamw and rmsprop", {.value = "EPS", .above = 0});
  line.add("rms-alpha", member_of("optimizer", o.optimizer, &RmspropOptions::alpha),
           "Decay of the average of squared gradients of rmsprop",
           {.value = "ALPHA", .minimum = 0, .below = 1});
  line.add("momentum",
           member_of("optimizer", o.optimizer, &SgdOptions::momentum, &RmspropOptions::momentum,
                     &MuonOptions::momentum),
           "Momentum of sgd, rmsprop and muon",
           {.value = "M", .minimum = 0, .below = 1, .start = {"optimizer", "momentum {}"}});
  line.add("nesterov", member_of("optimizer", o.optimizer, &SgdOptions::nesterov, &MuonOptions::nesterov),
           "Nesterov momentum for sgd and muon",
           {.default_note = "false with --momentum 0", .start = {"optimizer", "Nesterov"}});
  line.add("weight-decay", &o.weight_decay, "Weight decay of filters and weights (not of biases and norms)",
           {.value = "W", .minimum = 0, .start = {"optimizer", "weight decay {}"}});
  line.add("decay-biases", &o.decay_biases, "Weight decay of biases and norms too");
  line.add("label-smoothing", &o.label_smoothing, "Label smoothing factor",
           {.value = "S", .minimum = 0, .below = 1, .start = {"optimizer", "label smoothing {}"}});
  line.add("loss-reduction", &o.loss_reduction,
           "What gradients are computed of: the mean or the sum of the losses of a batch",
           {.value = "NAME", .choices = {"mean", "sum"}, .start = {"optimizer", "{} of the losses"}});
  line.add("clip-norm", &o.clip_norm, "Maximum global gradient norm; 0: no clipping",
           {.value = "NORM", .minimum = 0, .start = {"optimizer", "gradients clipped to {}"}});

  line.group("Optimizer and schedule");
  line.add("schedule",
           choice_of(o.schedule, [&o](std::string_view name) { return default_schedule(o, name); }),
           "Learning rate schedule", {.value = "NAME", .choices = names_of(o.schedule), .fixed = true});
  line.group("Optimizer and schedule", {.fixed = true, .advanced = true});
  line.add("warmup",
           member_of("schedule", o.schedule, &ConstantSchedule::warmup, &LinearSchedule::warmup,
                     &CosineSchedule::warmup, &StepSchedule::warmup, &ExponentialSchedule::warmup,
                     &PolynomialSchedule::warmup, &PlateauSchedule::warmup),
           "Warmup length: a fraction of all steps, or 500steps or 5epochs",
           {.value = "LENGTH", .minimum = 0, .maximum = 0.99, .unused = "0"});
  line.add(
      "min-lr",
      member_of("schedule", o.schedule, &LinearSchedule::min_lr, &CosineSchedule::min_lr,
                &PolynomialSchedule::min_lr, &PlateauSchedule::min_lr),
      "Rate at the end of the schedules cosine, linear and polynomial, and lowest one of plateau",
      {.value = "RATE", .minimum = 0, .unused = "0", .start = {"lr", "at least {}"}, .reschedules = true});
  line.add("cycles", member_of("schedule", o.schedule, &CosineSchedule::cycles),
           "Cycles of the schedule cosine, which restarts at the peak (SGDR)",
           {.value = "N", .minimum = 1, .maximum = 99});
  line.add("cycle-growth", member_of("schedule", o.schedule, &CosineSchedule::growth),
           "Length of a cycle of --cycles, as a multiple of the one before",
           {.value = "FACTOR", .minimum = 1, .maximum = 10});
  line.add(
      "milestones", member_of("schedule", o.schedule, &StepSchedule::milestones),
      "When the schedule step multiplies the rate by --gamma: a comma-separated list of fractions of all steps "
      "(below 1) and epochs (1 and more)",
      {.value = "LIST", .start = {"lr", "at {}"}});
  line.add("gamma",
           member_of("schedule", o.schedule, &StepSchedule::gamma, &ExponentialSchedule::gamma,
                     &PlateauSchedule::gamma),
           "Factor of the rate: at each milestone of step, after each epoch of exponential, at each plateau",
           {.value = "FACTOR", .above = 0, .start = {"lr", "factor {}"}});
  line.add(
      "plateau-patience", member_of("schedule", o.schedule, &PlateauSchedule::patience),
      "Epochs or, with --validation, evaluations without a lower loss which the schedule plateau allows before "
      "it multiplies the rate by --gamma",
      {.value = "N", .minimum = 0, .maximum = 1e6});
  line.add("plateau-threshold", member_of("schedule", o.schedule, &PlateauSchedule::threshold),
           "Fraction by which a loss must be lower than the best one for the schedule plateau",
           {.value = "FRACTION", .minimum = 0, .maximum = 0.999});
  line.add("power", member_of("schedule", o.schedule, &PolynomialSchedule::power),
           "Exponent of the schedule polynomial", {.value = "P", .above = 0, .start = {"lr", "power {}"}});
  line.add(
      "freeze", &o.freeze,
      "Parameters that are not trained (PREFIX), or only in the first epochs (PREFIX=EPOCHS), by prefixes of their "
      "names: none, or a comma-separated list",
      {.value = "LIST"});
  line.add(
      "lr-for", &o.lr_for,
      "Peak learning rates by prefixes of parameter names: none, or a comma-separated list of PREFIX=FACTORx (of "
      "--lr) and PREFIX=RATE; head is the last layer",
      {.value = "LIST", .start = {"lr", "{}"}, .reschedules = true});
  line.add("ema", &o.ema,
           "Decay of an exponential moving average of the weights, which is evaluated and saved; 0: none",
           {.value = "DECAY",
            .minimum = 0,
            .below = 1,
            .start = {"optimizer", "average of weights with decay {}"}});

  line.group("Optimizer and schedule");
  line.add("seed", &o.seed, "Random seed", {.value = "N", .minimum = 0, .fixed = true});
  line.add(
      "repeat", &o.repeat,
      "Trainings with the seeds --seed, --seed + 1, ..., in OUT/seed-K; the mean accuracy and its error are in "
      "OUT/repeat.json",
      {.value = "N", .minimum = 1, .maximum = 1000, .advanced = true, .in_config = false});
  line.add(
      "sweep", &o.sweep,
      "Trainings with each of these values of a flag, such as lr=0.05,0.1,0.2, in OUT/NAME-VALUE; several flags: "
      "each combination; ends in a table, OUT/sweep.json and OUT/report.html",
      {.value = "NAME=VALUES", .advanced = true, .in_config = false, .joins = true});

  add_compute_flags(line, o.compute);
  add_data_on_device_flag(line, o.compute);
  add_algorithm_flags(line, o.compute);
  add_cpu_level_flag(line, o.compute);
  line.add("precision", &o.precision, "Compute precision; fp16 and tf32 require a GPU",
           {.value = "NAME", .choices = precision_names(), .fixed = true});
  line.add("loss-scale", &o.loss_scale, "Loss scale of fp16: dynamic or a number",
           {.value = "dynamic|N", .advanced = true});

  add_job_flags(line, o.job);
  add_devices_flag(line, o.job);
  line.add("bucket-mb", &o.bucket_mb, "Gradient bucket size (MiB)",
           {.value = "MIB", .minimum = 0.001, .maximum = 1e5, .advanced = true});
  line.add("grad-dtype", &o.grad_dtype, "Type of gradients in communication",
           {.value = "NAME",
            .default_text = "the type they are computed in",
            .choices = {"fp32", "bf16", "fp16"},
            .fixed = true,
            .advanced = true});
  line.add("zero", &o.zero, "ZeRO (1: optimizer state, 2: +gradients)",
           {.value = "0|1|2", .minimum = 0, .maximum = 2});
  line.add("zero-group", &o.zero_group,
           "Ranks that hold all shards of --zero together; world: all, host: those of each host",
           {.value = "NAME", .choices = {"world", "host"}, .advanced = true});
  line.add("sync-bn", &o.sync_bn, "Batch norm statistics over the samples of all ranks",
           {.fixed = true, .advanced = true});
  line.add("bn-buffers", &o.bn_buffers,
           "Batch norm running statistics to evaluate and save; local: of rank 0, mean: of all samples",
           {.value = "NAME", .choices = {"local", "mean"}, .fixed = true, .advanced = true});

  line.group("Debugging");
  line.add("check-replicas", &o.check_replicas,
           "Interval between bitwise comparisons of the ranks' parameters (steps); 0: at the end only",
           {.value = "STEPS", .minimum = 0, .advanced = true});

  line.group("Checkpoints and logging");
  line.add("out", &o.out, "Output directory", {.value = "DIR", .default_text = "runs/MODEL-DATASET"});
  line.add("resume", &o.resume, "Checkpoint directory to resume from; auto: the latest in --out",
           {.value = "auto|DIR"});
  line.group("Checkpoints and logging", {.advanced = true});
  line.add("save-every", &o.save_every, "Checkpoint interval (steps); 0: each epoch",
           {.value = "STEPS", .minimum = 0});
  line.add("keep-last", &o.keep_last, "Latest checkpoints to keep, in addition to the best; 0: all",
           {.value = "N", .minimum = 0, .maximum = 1e6});
  line.add("keep-best", &o.keep_best, "Checkpoint with the best test accuracy saved and kept");
  line.add(
      "snapshot-every", &o.snapshot_every,
      "Interval between copies of the state in memory, from which the ranks continue when one fails under "
      "convoy-launch --min-ranks (steps); used with --zero and on GPUs",
      {.value = "STEPS", .minimum = 1, .maximum = 1e9});
  line.add("eval-every", &o.eval_every, "Evaluation interval (epochs); 0: at the end only",
           {.value = "EPOCHS", .minimum = 0});
  line.add("patience", &o.patience,
           "Evaluations without a better accuracy after which the training ends; 0: no early end",
           {.value = "N", .minimum = 0, .maximum = 1e6});
  line.add("tta", &o.tta,
           "Second evaluation at the end, whose predictions are averages over six views of each image",
           {.default_note = "only for photographs"});
  line.add("log-every", &o.log_every, "Logging interval (steps); 0: steps 1, 2, 5 and 10, and then by time",
           {.value = "STEPS", .minimum = 0});
  line.group("Checkpoints and logging");
  line.add("quiet", &o.quiet, "Only warnings, errors and the result on the terminal", {.in_config = false});
  line.add(
      "profile", &o.profile,
      "Steps, after the first three, of which each operation is timed: a table, and profile.json in the output "
      "directory; 0: none",
      {.value = "STEPS", .minimum = 0, .maximum = 1000, .advanced = true});
  line.add("memory", &o.memory, "Table of what is in memory at the peak of a step", {.advanced = true});
  line.add("trace", &o.trace,
           "Timeline for chrome://tracing or Perfetto; auto, or no value: trace.json in the output directory",
           {.value = "FILE", .advanced = true, .without_value = "auto"});

  line.group("Other");
  line.add("config", &o.config, "Flag values from a TOML file; the command line wins",
           {.value = "FILE", .in_config = false});
  line.add("print-config", &o.print_config, "Print the resolved flags and exit",
           {.advanced = true, .in_config = false});
  line.add("dry-run", &o.dry_run, "Run one batch, write nothing, and exit", {.in_config = false});
  return line;
}

std::vector<dist::ConsistencyEntry> consistency_entries_of(const CommandLine& line,
                                                           const std::vector<std::string>& local) {
  std::vector<dist::ConsistencyEntry> entries;
  for (const auto& [name, value] : parse_values(line.config()))
    if (std::ranges::find(local, name) == local.end()) entries.push_back({"--" + name, value});
  return entries;
}

optim::LossScaleSettings loss_scale_settings(const TrainOptions& options) {
  if (options.loss_scale == "dynamic") return {};
  const double scale = number_in<double>(options.loss_scale).value_or(0);
  check(scale >= 1 && scale <= kMaxLossScale,
        "--loss-scale: found '{}', expected dynamic or a number from 1 to {}", options.loss_scale,
        kMaxLossScale);
  return optim::LossScaleSettings::fixed(scale);
}

void check_consistency(const TrainOptions& o, const CommandLine& line) {
  check(o.stem == "auto" || models::find(o.model).has_stems, "--stem {}: {} has only one stem, expected auto",
        o.stem, o.model);
  check(o.activation == "auto" || models::find(o.model).has_activations,
        "--activation {}: {} has no choice, expected auto, or a speedrun network", o.activation, o.model);
  check(*o.epochs > 0 || o.max_steps > 0, "--epochs 0: expected --max-steps as well, or at least one epoch");
  check(o.micro_batch_size <= *o.batch_size, "--micro-batch-size {}: expected at most --batch-size {}",
        o.micro_batch_size, *o.batch_size);
  const bool has_batch_norm = models::find(o.model).has_batch_norm;
  check(!o.sync_bn || has_batch_norm, "--sync-bn: {} has no batch norm, expected a model with one", o.model);
  check(o.bn_buffers == "local" || has_batch_norm, "--bn-buffers {}: {} has no batch norm, expected local",
        o.bn_buffers, o.model);
  check(o.bn_buffers == "local" || !o.sync_bn,
        "--bn-buffers {}: with --sync-bn all ranks have the same statistics, expected local", o.bn_buffers);
  check(o.zero == 0 || !o.grad_dtype,
        "--grad-dtype {}: not supported with --zero {}, expected one of the two", o.grad_dtype.value_or(""),
        o.zero);
  check(o.zero > 0 || o.zero_group == "world", "--zero-group {}: found --zero 0, expected 1 or 2",
        o.zero_group);
  check_optimizer(o);
  check(o.precision != "fp64" || o.grad_dtype != "fp32",
        "--grad-dtype fp32: found --precision fp64, expected --grad-dtype bf16 or fp16, or none");
  check(o.precision == "fp16" || o.loss_scale == "dynamic",
        "--loss-scale: found --precision {}, expected fp16", o.precision);
  loss_scale_settings(o);
  validation_count(o.data.validation, 1);  // checks the text
  check(o.patience == 0 || *o.eval_every > 0, "--patience {}: found --eval-every 0, expected at least 1",
        o.patience);
  check(!line.given("out") || !o.out->empty(), "--out: found '', expected a directory");
  data::make_transform(*o.augment, {});  // checks the text
  parse_freeze_rules(*o.freeze);
  for (const RateRule& rule : parse_rate_rules(o.lr_for))
    check(rule.is_factor || *o.lr > 0,
          "--lr-for {}={}: found --lr 0, expected more than 0, or a factor such as 10x", rule.prefix,
          rule.value);
  check_schedule(o);
  check_rate_search(o, line);
  check_batch_search(o, line);
  check(o.resume.empty() || o.resume == "auto" || o.init_from.empty(),
        "--init-from: found --resume {}, which loads parameters from a checkpoint; expected one of the two",
        o.resume);
  check_augmentation(o);
  check(o.sampling == "uniform" || !o.overfit_batch,
        "--sampling {}: found --overfit-batch, expected one of the two", o.sampling);
  if (o.overfit_batch) {
    check(o.augment == "none", "--augment {}: found --overfit-batch, expected none", *o.augment);
    check(o.micro_batch_size == 0, "--micro-batch-size: found --overfit-batch, expected 0");
  }
}

}  // namespace convoy
