#include "apps/train_options.h"

#include <charconv>

#include "apps/local_ranks.h"
#include "kernels/runtime/check.h"
#include "models/models.h"

namespace convoy {
namespace {

constexpr double kMostLossScale = 1 << 24;

}  // namespace

CommandLine train_command_line(TrainOptions& o) {
  CommandLine line(
      "convoy-train",
      "Trains a network. Without flags: ResNet-20 on CIFAR-10. Everything goes to the --out folder.");
  line.heading("Model");
  line.add("model", &o.model, "Network", {.value = "NAME", .choices = models::names()});
  line.add("stem", &o.stem, "First layers of resnet18, 34 and 50; auto: imagenet from 128 pixels on",
           {.value = "NAME", .choices = {"auto", "cifar", "imagenet"}});
  line.add("init-from", &o.init_from, "Start from the tensors of this safetensors file", {.value = "FILE"});
  line.add("summary", &o.summary, "Print the layers with shapes, parameters and FLOPs, and exit",
           {.in_config = false});

  line.heading("Data");
  add_data_flags(line, o.data);
  line.add("fallback-shapes", &o.data.fallback_shapes,
           "Train on the generated shapes where the data set is found nowhere and cannot be downloaded");
  line.add("augment", &o.augment,
           "auto, none, or a comma list of crop[=4], reflect, resized-crop[=8], flip, cutout[=8]",
           {.value = "LIST", .default_is = "crop=4,flip for photographs, else none"});
  line.add("overfit-batch", &o.overfit_batch,
           "Train on the first batch alone: a correct set-up drives its loss to 0");

  line.heading("Training");
  line.add(
      "epochs", &o.epochs, "Passes over the training images; 0: as many as --max-steps needs",
      {.value = "N", .default_is = "10; lenet too, on mnist 6; 0 with --max-steps", .least = 0, .most = 1e6});
  line.add("max-steps", &o.max_steps, "Most updates; 0: no limit", {.value = "N", .least = 0});
  line.add("batch-size", &o.batch_size, "Samples of an update, in all",
           {.value = "N", .default_is = "128", .least = 1, .most = 1 << 20});
  line.add("micro-batch-size", &o.micro_batch_size,
           "Most samples computed at once: an update adds up as many passes as it takes; 0: all of them",
           {.value = "N", .least = 0, .most = 1 << 20});
  line.add("optimizer", &o.optimizer, "Optimizer", {.value = "NAME", .choices = {"sgd", "adam", "adamw"}});
  line.add("lr", &o.lr, "Peak learning rate",
           {.value = "RATE", .default_is = "sgd 0.2, lenet 0.05; adam and adamw 0.001", .least = 0});
  line.add("momentum", &o.momentum, "Momentum of sgd",
           {.value = "M", .default_is = "0.9", .least = 0, .most = 1});
  line.add("nesterov", &o.nesterov, "Nesterov's momentum in sgd", {.default_is = "true with momentum"});
  line.add("weight-decay", &o.weight_decay, "Decay of filters and weights; biases and norms have none",
           {.value = "W", .default_is = "sgd 0.0005, adam 0, adamw 0.01", .least = 0});
  line.add("label-smoothing", &o.label_smoothing, "Share of the target spread over all classes",
           {.value = "S", .default_is = "0.1; lenet 0", .least = 0, .most = 1});
  line.add("clip-norm", &o.clip_norm, "Scale gradients down to this common norm; 0: never",
           {.value = "NORM", .least = 0});
  line.add("schedule", &o.schedule, "Learning rate over the steps",
           {.value = "NAME",
            .default_is = "cosine",
            .choices = {"constant", "linear", "cosine", "step", "triangle"}});
  line.add(
      "warmup", &o.warmup,
      "Share of the steps in which the rate rises to its peak, before the schedule begins",
      {.value = "SHARE", .default_is = "0.2; lenet 0.1; constant and triangle 0", .least = 0, .most = 0.99});
  line.add("seed", &o.seed, "Of initialisation, order and augmentation", {.value = "N", .least = 0});

  line.heading("Machine");
  add_compute_flags(line, o.compute);
  add_data_on_device_flag(line, o.compute);
  add_cuda_graph_flag(line, o.compute);
  add_algorithm_flags(line, o.compute);
  line.add("precision", &o.precision,
           "Of arithmetic. The parameters of fp16 and bf16 stay fp32; tf32 rounds the factors of products; "
           "fp16 and tf32 need a GPU",
           {.value = "NAME", .choices = precision_names()});
  line.add("loss-scale", &o.loss_scale,
           "Of fp16: what the loss is multiplied by to keep small gradients; dynamic, or a number",
           {.value = "dynamic|N"});

  add_job_flags(line, o.job);
  add_devices_flag(line, o.job);
  line.add("bucket-mb", &o.bucket_mb, "Gradients that travel together between ranks, in MiB at most",
           {.value = "MIB", .least = 0.001, .most = 1e5});
  line.add("grad-dtype", &o.grad_dtype, "What gradients are rounded to for their way between ranks",
           {.value = "NAME", .default_is = "as they are computed", .choices = {"fp32", "bf16", "fp16"}});
  line.add("zero", &o.zero,
           "What is divided over the ranks instead of being the same on each: 0 nothing, 1 the optimizer's "
           "state, 2 the sums of gradients, too",
           {.value = "0|1|2", .least = 0, .most = 2});
  line.add("sync-bn", &o.sync_bn,
           "Normalize by the statistics of all ranks' samples, not of a rank's own, as one process would");
  line.add(
      "bn-buffers", &o.bn_buffers,
      "Running statistics that evaluations and checkpoints take where ranks have each its own: local (rank "
      "0's), or mean (those of all samples together)",
      {.value = "NAME", .choices = {"local", "mean"}});
  line.add("check-replicas", &o.check_replicas,
           "Steps between comparisons of the parameters of all ranks, bit by bit; 0: at the end alone",
           {.value = "STEPS", .least = 0});

  line.heading("Output");
  line.add("out", &o.out, "Folder of the run", {.value = "DIR", .default_is = "runs/MODEL-DATASET"});
  line.add("resume", &o.resume,
           "Continue: auto (the newest checkpoint in --out, if any), or a checkpoint's folder",
           {.value = "auto|DIR"});
  line.add("save-every", &o.save_every, "Steps between checkpoints; 0: at the end of each epoch",
           {.value = "STEPS", .default_is = "0; 200 with --overfit-batch", .least = 0});
  line.add("keep-last", &o.keep_last, "Checkpoints to keep beside the best; 0: all",
           {.value = "N", .least = 0, .most = 1e6});
  line.add("keep-best", &o.keep_best, "Save and keep the checkpoint with the best test accuracy");
  line.add("eval-every", &o.eval_every, "Epochs between evaluations; 0: at the end alone",
           {.value = "EPOCHS", .default_is = "1; 0 with --overfit-batch", .least = 0});
  line.add("log-every", &o.log_every, "Steps between lines of log.jsonl and of a pipe",
           {.value = "STEPS", .least = 1});
  line.add("trace", &o.trace, "Write a timeline of the run for chrome://tracing or Perfetto",
           {.value = "FILE"});

  line.heading("Configuration");
  line.add("config", &o.config,
           "Read flags from this file, such as a run's config.toml; the command line wins",
           {.value = "FILE", .in_config = false});
  line.add("print-config", &o.print_config, "Print every flag as it was resolved, and exit",
           {.in_config = false});
  line.add("dry-run", &o.dry_run, "Read the data, build the model, try one batch, write nothing, and exit",
           {.in_config = false});
  return line;
}

LossScaleSettings loss_scale_settings(const TrainOptions& options) {
  if (options.loss_scale == "dynamic") return {};
  double scale = 0;
  const char* const end = options.loss_scale.data() + options.loss_scale.size();
  const auto [rest, problem] = std::from_chars(options.loss_scale.data(), end, scale);
  check(problem == std::errc() && rest == end && scale >= 1 && scale <= kMostLossScale,
        "--loss-scale: found '{}', expected dynamic, or a number from 1 to {}", options.loss_scale,
        kMostLossScale);
  return LossScaleSettings::fixed(scale);
}

void check_consistency(const TrainOptions& o, const CommandLine& line) {
  const bool stem_matters = o.model == "resnet18" || o.model == "resnet34" || o.model == "resnet50";
  check(o.stem == "auto" || stem_matters, "--stem {}: {} has one stem only, expected auto", o.stem, o.model);
  check(*o.epochs > 0 || o.max_steps > 0, "--epochs 0: expected --max-steps with it, or at least one epoch");
  check(o.micro_batch_size <= *o.batch_size, "--micro-batch-size {}: more than --batch-size {}",
        o.micro_batch_size, *o.batch_size);
  const bool has_batch_norm = models::has_batch_norm(o.model);
  check(!o.sync_bn || has_batch_norm, "--sync-bn: {} has no batch norm, expected a model with one", o.model);
  check(o.bn_buffers == "local" || has_batch_norm, "--bn-buffers {}: {} has no batch norm, expected local",
        o.bn_buffers, o.model);
  check(o.bn_buffers == "local" || !o.sync_bn,
        "--bn-buffers {}: with --sync-bn all ranks have the same ones, expected local", o.bn_buffers);
  check(o.zero == 0 || !o.grad_dtype,
        "--grad-dtype {}: with --zero {} gradients are summed as they are computed, expected one of the two",
        o.grad_dtype.value_or(""), o.zero);
  if (o.optimizer == "sgd") {
    check(!*o.nesterov || *o.momentum > 0, "--nesterov: --momentum is 0, expected more");
    check(*o.momentum < 1, "--momentum {}: expected less than 1", *o.momentum);
  } else {
    for (const char* name : {"momentum", "nesterov"})
      check(!line.given(name), "--{}: {} has none, expected --optimizer sgd with it", name, o.optimizer);
  }
  check(
      o.precision != "fp64" || o.grad_dtype != "fp32",
      "--grad-dtype fp32: the gradients of --precision fp64 are fp64; expected bf16, fp16, or no such flag");
  check(o.precision == "fp16" || o.loss_scale == "dynamic",
        "--loss-scale: {} needs none, expected --precision fp16 with it", o.precision);
  loss_scale_settings(o);
  check(*o.label_smoothing < 1, "--label-smoothing {}: expected less than 1", *o.label_smoothing);
  check(o.schedule != "triangle" || *o.warmup == 0,
        "--warmup {}: the triangle schedule rises by itself, expected 0", *o.warmup);
  check(o.resume.empty() || o.resume == "auto" || o.init_from.empty(),
        "--init-from: --resume {} takes the parameters from a checkpoint, expected one of the two", o.resume);
  if (o.overfit_batch) {
    check(o.augment == "none", "--augment {}: --overfit-batch shows the same images each time, expected none",
          *o.augment);
    check(o.micro_batch_size == 0, "--micro-batch-size: --overfit-batch takes one batch whole, expected 0");
  }
}

}  // namespace convoy
