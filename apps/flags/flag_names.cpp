#include "convoy/apps/flags/flag_names.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <vector>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/nearest_name.h"
#include "convoy/kernels/base/option_error.h"

namespace convoy {

namespace {

/// The names that other trainers have for a flag.
struct Synonyms {
  std::string_view flag;  // for programs that have this flag, without dashes; empty: for all programs
  std::vector<std::string_view> names;  // in lower case, with hyphens; the rows with the best flag come first
  std::string_view text = "";           // what to do instead; empty if the flag has the same meaning
};
const std::vector<Synonyms> kSynonyms = {
    {"lr", {"learning-rate", "base-lr", "max-lr", "peak-lr", "initial-lr"}},
    {"batch-size", {"bs", "train-batch-size", "per-device-train-batch-size", "per-gpu-batch-size"}},
    {"micro-batch-size",
     {"gradient-accumulation-steps", "grad-accum", "accumulate-grad-batches", "accum-iter", "accum-steps"}},
    {"epochs", {"num-epochs", "max-epochs", "num-train-epochs", "n-epochs"}},
    {"max-steps", {"steps", "num-steps", "iterations", "max-iters", "max-train-steps"}},
    {"model", {"arch", "architecture", "network", "net"}},
    {"init-from", {"pretrained", "weights", "pretrain", "finetune", "load", "load-from"}},
    {"checkpoint", {"weights", "ckpt", "model-path", "load", "resume"}},
    {"resume", {"resume-from", "resume-from-checkpoint", "ckpt-path", "checkpoint", "continue"}},
    {"data", {"data-dir", "data-path", "data-root", "dataset-dir", "root"}},
    {"out", {"output", "output-dir", "save-dir", "log-dir", "logdir", "checkpoint-dir", "work-dir"}},
    {"workers", {"num-workers", "j", "dataloader-num-workers", "loader-workers"}},
    {"image-size", {"img-size", "imgsz", "input-size", "resize", "crop-size", "resolution"}},
    {"optimizer", {"opt", "optim"}},
    {"weight-decay", {"wd"}},
    {"schedule", {"scheduler", "lr-scheduler", "lr-schedule", "lr-scheduler-type", "sched"}},
    {"warmup", {"warmup-steps", "warmup-epochs", "warmup-ratio", "lr-warmup-epochs", "num-warmup-steps"}},
    {"clip-norm", {"max-grad-norm", "grad-clip", "clip-grad", "clip-grad-norm", "gradient-clip-val"}},
    {"label-smoothing", {"smoothing"}},
    {"seed", {"random-seed", "manual-seed"}},
    {"precision", {"fp16", "bf16", "fp32", "amp", "half", "use-amp", "mixed-precision", "autocast", "dtype"}},
    {"loss-scale", {"static-loss-scale", "initial-scale-power", "init-scale"}},
    {"devices", {"gpus", "num-gpus", "ngpus", "n-gpus", "ngpu", "num-devices"}},
    {"device",
     {"devices", "gpus", "num-gpus", "ngpus", "n-gpus", "ngpu", "num-devices"},
     "this program uses one device per process, which --device selects"},
    {"device", {"gpu", "gpu-id", "gpu-ids", "cuda", "use-gpu", "no-cuda", "accelerator"}},
    {"comm", {"backend", "dist-backend", "distributed-backend", "ddp-backend"}},
    {"rendezvous",
     {"init-method", "dist-url", "master-addr", "master-port", "rdzv-endpoint", "rdzv-backend"}},
    {"sync-bn", {"sync-batchnorm", "sync-batch-norm", "syncbn"}},
    {"zero", {"zero-stage", "fsdp"}},
    {"zero-group", {"sharding-strategy", "hybrid-shard", "mics-shard-size"}},
    {"eval-every", {"eval-interval", "eval-freq", "eval-steps", "val-interval", "check-val-every-n-epoch"}},
    {"log-every", {"log-interval", "log-freq", "logging-steps", "print-freq", "log-every-n-steps"}},
    {"save-every", {"save-interval", "save-freq", "save-steps"}},
    {"keep-last", {"save-total-limit", "save-top-k"}},
    {"deterministic", {"cudnn-deterministic", "use-deterministic-algorithms"}},
    {"dry-run", {"fast-dev-run"}},
    {"quiet", {"silent", "q", "no-progress", "disable-tqdm"}},
    {"top", {"topk", "top-k"}},
    {"ranks", {"rank", "world-size", "nproc-per-node", "num-processes", "np", "n"}},
    {"",
     {"local-rank", "rank", "world-size", "nproc-per-node", "nnodes", "node-rank", "num-nodes", "nodes",
      "num-processes", "num-machines", "machine-rank", "distributed", "multiprocessing-distributed"},
     "ranks come from the launcher: mpirun -n N, srun, torchrun, convoy-launch, or --devices N"},
    {"",
     {"deepspeed", "deepspeed-config", "ds-config", "accelerate", "accelerate-config", "config-file"},
     "docs/from-pytorch.md has the flags for the keys of DeepSpeed's and Accelerate's configurations"},
    {"patience", {"early-stopping", "early-stop", "early-stopping-patience", "early-stopping-rounds"}},
    {"adam-betas", {"betas", "opt-betas", "beta1", "beta2", "adam-beta1", "adam-beta2"}},
    {"adam-eps", {"eps", "epsilon", "opt-eps", "adam-epsilon"}},
    {"mixup", {"mixup-alpha"}},
    {"cutmix", {"cutmix-alpha"}},
    {"random-erasing", {"reprob", "random-erase", "random-erase-prob"}},
    {"augment",
     {"aa", "auto-augment", "randaugment", "color-jitter", "hflip", "data-augmentation", "transforms"}},
    {"class-weights", {"class-weight", "loss-weights"}},
    {"sampling", {"sampler", "weighted-sampler", "balanced-sampling", "oversample"}},
    {"ema", {"ema-decay", "model-ema", "model-ema-decay", "use-ema"}},
    {"gamma", {"lr-gamma", "decay-rate", "lr-decay", "step-gamma"}},
    {"milestones", {"lr-steps", "decay-milestones", "step-size", "lr-step-size", "decay-epochs"}},
    {"activation-checkpointing", {"gradient-checkpointing", "grad-checkpointing", "recompute"}},
    {"bucket-mb", {"bucket-cap-mb"}},
    {"profile", {"profiler", "profile-steps"}},
    {"",
     {"tensorboard", "logger", "wandb", "mlflow", "report-to", "log-wandb", "use-wandb"},
     "docs/report.md passes the log of a run on to TensorBoard, Weights & Biases and MLflow"},
    {"",
     {"hostfile", "hosts", "host", "machinefile", "hostname"},
     "hosts come from the launcher: mpirun --hostfile FILE, srun, or convoy-launch"},
    {"validation", {"val-split", "validation-split", "val-fraction", "val-pct", "val-size", "valid-size"}},
};

}  // namespace

std::string message_with_flag(const std::exception& error) {
  static const std::map<std::string_view, const char*> kFlags = {
      {"LoaderOptions::global_batch", "--batch-size"},
      {"LoaderOptions::micro_batch", "--micro-batch-size"},
      {"LoaderOptions::workers", "--workers"},
      {"LoaderOptions::max_epochs", "--epochs"},
      {"ReadOptions::workers", "--workers"},
      {"ReadOptions::image_size", "--image-size"},
      {"AugmentOptions", "--augment"},
      {"hold_out count", "--validation"},
      {"Device::parse", "--device"},
      {"RendezvousOptions::init_method", "--rendezvous"},
  };
  static const std::map<std::string_view, const char*> kRemedies = {
      {"start at most one rank per GPU, or set allow_shared_gpu",
       "start at most one rank per GPU, or add --allow-shared-gpu"},
      {"set ReadOptions::skip_corrupt to leave them out", "--skip-corrupt leaves them out"},
      {"use smaller batches", "lower --batch-size or --micro-batch-size"},
  };
  if (const auto* const with_remedy = dynamic_cast<const Remedy*>(&error)) {
    const std::string_view message = error.what(), advice = with_remedy->remedy();
    for (const auto& [remedy, by_flags] : kRemedies)
      if (advice.ends_with(remedy))
        return fmt::format("{}{}", message.substr(0, message.size() - remedy.size()), by_flags);
    constexpr std::string_view kOtherDirectory = "did you mean the directory ";
    if (advice.starts_with(kOtherDirectory))
      return fmt::format("{}did you mean --data {}", message.substr(0, message.size() - advice.size()),
                         advice.substr(kOtherDirectory.size()));
  }
  const auto* const of_option = dynamic_cast<const OptionError*>(&error);
  if (of_option == nullptr) return error.what();
  const auto flag = kFlags.find(of_option->option());
  return flag == kFlags.end() ? error.what() : fmt::format("{}: {}", flag->second, of_option->problem());
}

std::string suggestion(std::string_view name, std::span<const std::string> candidates,
                       std::string_view prefix) {
  name.remove_prefix(std::min(name.find_first_not_of('-'), name.size()));
  std::string plain;
  for (const char c : name)
    plain += c == '_' ? '-' : static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  for (const auto& [flag, names, text] : kSynonyms) {
    if (std::ranges::find(names, plain) == names.end()) continue;
    const bool has_flag = std::ranges::find(candidates, flag) != candidates.end();
    if (!has_flag && !flag.empty()) continue;
    return text.empty() ? fmt::format("; did you mean '{}{}'?", prefix, flag) : fmt::format("; {}", text);
  }
  const std::string nearest = nearest_name(name, candidates);
  return nearest.empty() ? "" : fmt::format("; did you mean '{}{}'?", prefix, nearest);
}

}  // namespace convoy
