#include "bench/step/step.h"

#include "convoy/apps/ranks/local_ranks.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy::bench {
namespace {

// GPU steps are short, so timing them accurately needs many of them.
constexpr std::int64_t kCpuSteps = 5, kGpuSteps = 100;

bool uses_gpu(const std::string& device) {
  return device.starts_with("cuda") || (device == "auto" && cuda_availability().count > 0);
}

}  // namespace

CommandLine step_command_line(StepOptions& options) {
  TrainOptions& o = options.training;
  CommandLine line(
      "convoy-bench-step",
      "Measures training steps of convoy-train on generated images: throughput, step time and memory.");
  line.group("Step");
  line.show_defaults([] {
    std::map<std::string, std::string> texts = default_texts();
    std::erase_if(texts,
                  [](const auto& each) { return each.first != "batch-size" && each.first != "optimizer"; });
    return texts;
  });
  add_model_flags(line, o);
  line.add("image-size", &o.data.image_size, "Image size (pixels per side)",
           {.value = "PIXELS", .default_text = "32", .minimum = 8, .maximum = 4096});
  add_batch_flags(line, o, /*has_auto=*/false);
  line.add("workers", &o.data.workers, "Data loader threads; 0: main thread",
           {.value = "N", .minimum = 0, .maximum = 256, .advanced = true});

  add_compute_flags(line, o.compute);
  add_data_on_device_flag(line, o.compute);
  add_algorithm_flags(line, o.compute);
  line.add("precision", &o.precision, "Compute precision", {.value = "NAME", .choices = precision_names()});
  add_job_flags(line, o.job);
  add_devices_flag(line, o.job);

  line.group("Measurement");
  line.add("steps", &options.steps, "Steps per round",
           {.value = "N",
            .default_text = fmt::format("{}; {} on a GPU", kCpuSteps, kGpuSteps),
            .minimum = 1,
            .maximum = 1e6});
  line.add("rounds", &options.rounds, "Measured rounds; results are the median, minimum and maximum",
           {.value = "N", .minimum = 1, .maximum = 1e4});
  line.add("warmup", &options.warmup, "Warmup rounds", {.value = "N", .minimum = 0, .maximum = 1e4});
  line.add(
      "count", &options.count,
      "What each kernel and library call of one step moves on an emulated GPU, and the time that a model of an "
      "H100 predicts; needs --device cuda and a build whose emulated GPUs count");
  line.add("json", &options.json, "Result file (JSON)", {.value = "FILE"});
  return line;
}

void resolve(StepOptions& options) {
  TrainOptions& training = options.training;
  training.data.dataset = "shapes";
  if (training.data.image_size == 0) training.data.image_size = 32;
  if (options.count) {  // two steps op by op and a capture; then a counted replay
    options.steps = 1;
    options.warmup = 3;
    options.rounds = 2;  // the first one is counted when the second begins
  }
  options.steps = options.steps.value_or(uses_gpu(training.compute.device) ? kGpuSteps : kCpuSteps);
  training.max_steps = options.total_steps();
  training.log_every = *options.steps;
  training.eval_every = 0;
  training.save_every = training.max_steps + 1;
  // The same settings as in bench/python/compare.py step. A learning rate schedule would not change the work of a step.
  training.schedule = ConstantSchedule();
  training.lr = 0.01;
  training.augment = "none";
  training.out = "";
  resolve_recipe(training);
}

void check_consistency(const StepOptions& options, const CommandLine& line) {
  check_consistency(options.training, line);
  if (options.count) {
    check(options.training.compute.device.starts_with("cuda"), "--count: found --device {}, expected cuda",
          options.training.compute.device);
    for (const char* name : {"steps", "rounds", "warmup", "devices"})
      check(!line.given(name), "--{}: not supported with --count, which counts one step of one rank", name);
  }
}

}  // namespace convoy::bench
