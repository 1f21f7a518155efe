// The keys of the configuration that `accelerate config` writes.
#include <algorithm>
#include <array>

#include "convoy/apps/train/interop/translate.h"
#include "convoy/kernels/base/check.h"

namespace convoy::interop {
namespace {

void translate_distributed_type(Translation& file) {
  const std::optional<std::string> type = file.take("distributed_type");
  if (!type) return;
  constexpr std::array kKnown = {"NO", "MULTI_CPU", "MULTI_GPU", "DEEPSPEED", "FSDP"};
  if (std::find(kKnown.begin(), kKnown.end(), *type) == kKnown.end() &&
      *type != "false")  // NO without quotes
    file.refuse("distributed_type", *type, "NO, MULTI_CPU, MULTI_GPU, DEEPSPEED or FSDP");
  if (*type == "MULTI_CPU")
    file.set("device", "cpu", "distributed_type");
  else
    file.note_taken("distributed_type " + *type);
}

void translate_precision(Translation& file) {
  const std::optional<std::string> precision = file.take("mixed_precision");
  if (!precision) return;
  if (*precision == "no" || *precision == "false") return file.set("precision", "fp32", "mixed_precision no");
  if (*precision != "fp16" && *precision != "bf16")
    file.refuse("mixed_precision", *precision, "no, fp16 or bf16");
  file.set("precision", *precision, "mixed_precision");
}

/// PyTorch's FSDP: its strategies with ZeRO's stages.
void translate_fsdp(Translation& file) {
  const std::string key = "fsdp_config.fsdp_sharding_strategy";
  if (file.take_true("fsdp_config.fsdp_offload_params"))
    file.refuse("fsdp_config.fsdp_offload_params", "true", "false: parameters stay on their device");
  const std::optional<std::string> strategy = file.take(key);
  if (!strategy) {
    if (file.contains("fsdp_config"))
      file.refuse(key, "none, which means FULL_SHARD",
                  "SHARD_GRAD_OP or NO_SHARD: parameters are not divided");
    return;
  }
  if (*strategy == "SHARD_GRAD_OP" || *strategy == "2")
    file.set("zero", "2", key);
  else if (*strategy == "NO_SHARD" || *strategy == "3")
    file.set("zero", "0", key);
  else
    file.refuse(key, *strategy, "SHARD_GRAD_OP (--zero 2) or NO_SHARD: parameters are not divided");
}

/// The section of ZeRO, which is a file of its own or keys.
std::vector<Report> translate_zero(const TrainOptions& options, CommandLine& line, Translation& file) {
  const std::string section = "deepspeed_config.";
  std::vector<Report> reports;
  if (const auto path = file.take(section + "deepspeed_config_file")) {
    Translation deepspeed(line, *path, read_json(*path));
    translate_deepspeed(options, deepspeed);
    reports.push_back({deepspeed.taken(), deepspeed.ignored()});
    file.note_taken(fmt::format("{}deepspeed_config_file {}", section, *path));
  }
  for (const std::string part : {"offload_optimizer_device", "offload_param_device"})
    if (const auto device = file.take(section + part); device && *device != "none")
      file.refuse(section + part, *device,
                  "none; --zero 1 or 2 divides the optimizer's state over the ranks");
  translate_zero_stage(file, section + "zero_stage");
  const std::array clipping = {SameMeaning{"deepspeed_config.gradient_clipping", "clip-norm"}};
  file.set_all(clipping);
  return reports;
}

}  // namespace

std::vector<Report> translate_accelerate(const TrainOptions& options, CommandLine& line, Translation& file) {
  translate_distributed_type(file);
  if (file.take_true("use_cpu")) file.set("device", "cpu", "use_cpu true");
  translate_precision(file);
  translate_fsdp(file);
  std::vector<Report> reports = translate_zero(options, line, file);
  for (const char* key : {"gradient_accumulation_steps", "deepspeed_config.gradient_accumulation_steps"})
    if (const auto accumulation = file.take_count(key, 1, 1 << 20))
      set_accumulation(options, file, *accumulation, key);
  const std::int64_t ranks = rank_count(options);
  if (const auto processes = file.take_count("num_processes"); processes && *processes != ranks)
    file.note_ignored(
        fmt::format("num_processes {} (there {} {}; mpirun -n {}, torchrun, convoy-launch or --devices "
                    "start more)",
                    *processes, ranks == 1 ? "is" : "are", ranks, *processes));
  else if (processes)
    file.note_taken(fmt::format("num_processes {}", *processes));
  return reports;
}

std::vector<Report> apply_foreign_configs(const TrainOptions& options, CommandLine& line) {
  std::vector<Report> reports;
  if (const std::string& path = options.deepspeed_config; !path.empty()) {
    Translation file(line, path, read_json(path));
    translate_deepspeed(options, file);
    reports.push_back({file.taken(), file.ignored()});
  }
  if (const std::string& path = options.accelerate_config; !path.empty()) {
    Translation file(line, path, read_yaml(path));
    for (Report& report : translate_accelerate(options, line, file)) reports.push_back(std::move(report));
    reports.push_back({file.taken(), file.ignored()});
  }
  return reports;
}

}  // namespace convoy::interop
