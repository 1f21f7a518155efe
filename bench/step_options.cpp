#include "bench/step_options.h"

#include <algorithm>
#include <array>
#include <string_view>

#include "apps/local_ranks.h"
#include "apps/setup.h"
#include "kernels/runtime/check.h"
#include "models/models.h"

namespace convoy::bench {
namespace {

// A GPU's steps are so short that the host's clock needs many of them.
constexpr std::int64_t kCpuSteps = 5, kGpuSteps = 100;

// What --compare-pytorch takes: the others have no counterpart on the other side.
constexpr std::array<std::string_view, 12> kCompared = {
    "model", "batch-size", "image-size", "device", "threads",         "precision",
    "steps", "rounds",     "warmup",     "python", "compare-pytorch", "cold-start"};

bool uses_gpu(const std::string& device) {
  return device.starts_with("cuda") || (device == "auto" && cuda_availability().count > 0);
}

}  // namespace

CommandLine step_command_line(StepOptions& options) {
  TrainOptions& o = options.training;
  CommandLine line("convoy-bench-step",
                   "Measures whole training steps, as convoy-train takes them, on generated images: images a "
                   "second, milliseconds, memory, and where the time goes.");
  line.heading("Step");
  line.add("model", &o.model, "Network", {.value = "NAME", .choices = models::names()});
  line.add("stem", &o.stem, "First layers of resnet18, 34 and 50; auto: imagenet from 128 pixels on",
           {.value = "NAME", .choices = {"auto", "cifar", "imagenet"}});
  line.add("image-size", &o.data.image_size, "Side of the images, in pixels",
           {.value = "PIXELS", .least = 8, .most = 4096});
  line.add("batch-size", &o.batch_size, "Samples of an update, in all",
           {.value = "N", .default_is = "128", .least = 1, .most = 1 << 20});
  line.add("micro-batch-size", &o.micro_batch_size,
           "Most samples computed at once: an update adds up as many passes as it takes; 0: all of them",
           {.value = "N", .least = 0, .most = 1 << 20});
  line.add("optimizer", &o.optimizer, "Optimizer", {.value = "NAME", .choices = {"sgd", "adam", "adamw"}});
  line.add("workers", &o.data.workers, "Threads that prepare batches; 0: none beside the main one",
           {.value = "N", .least = 0, .most = 256});

  line.heading("Machine");
  add_compute_flags(line, o.compute);
  add_data_on_device_flag(line, o.compute);
  add_cuda_graph_flag(line, o.compute);
  add_algorithm_flags(line, o.compute);
  line.add("precision", &o.precision, "Of arithmetic", {.value = "NAME", .choices = precision_names()});
  add_job_flags(line, o.job);
  add_devices_flag(line, o.job);

  line.heading("Measurement");
  line.add("steps", &options.steps, "Steps of a round",
           {.value = "N",
            .default_is = fmt::format("{}; {} on a GPU", kCpuSteps, kGpuSteps),
            .least = 1,
            .most = 1e6});
  line.add("rounds", &options.rounds, "Rounds: a figure is their median, with the lowest and the highest",
           {.value = "N", .least = 1, .most = 1e4});
  line.add("warmup", &options.warmup, "Rounds before them that are not counted",
           {.value = "N", .least = 0, .most = 1e4});
  line.add("breakdown", &options.breakdown,
           "Say where the time of a step goes; each step then waits for the device to be done");
  line.add("compare-pytorch", &options.compare_pytorch,
           "Time the same step of PyTorch in turn with convoy-train's, and give the ratios");
  line.add("cold-start", &options.cold_start,
           "With --compare-pytorch: the seconds from the start of a process to the end of its first step");
  line.add("python", &options.python, "With --compare-pytorch: the Python that has torch", {.value = "PATH"});
  line.add("json", &options.json, "Write the figures to this file, too",
           {.value = "FILE", .default_is = "none"});
  return line;
}

void resolve(StepOptions& options) {
  TrainOptions& training = options.training;
  training.data.dataset = "shapes";
  if (training.data.image_size == 0) training.data.image_size = 32;
  options.steps = options.steps.value_or(uses_gpu(training.compute.device) ? kGpuSteps : kCpuSteps);
  training.max_steps = options.total_steps();
  training.log_every = *options.steps;
  training.eval_every = 0;
  training.save_every = training.max_steps + 1;
  // As compare_step.py asks for: rates that change would be no other work.
  training.schedule = "constant";
  training.lr = 0.01;
  training.warmup = 0;
  training.augment = "none";
  training.out = "";
  resolve_recipe(training);
}

void check_consistency(const StepOptions& options, const CommandLine& line) {
  check_consistency(options.training, line);
  check(options.cold_start ? options.compare_pytorch : true,
        "--cold-start: expected --compare-pytorch with it");
  check(options.compare_pytorch || !line.given("python"), "--python: expected --compare-pytorch with it");
  if (!options.compare_pytorch) return;
  for (const auto& [name, value] : flags_by_name(line.config()))
    check(!line.given(name) || name == "json" ||
              std::find(kCompared.begin(), kCompared.end(), name) != kCompared.end(),
          "--{}: PyTorch's side has none, expected no such flag with --compare-pytorch", name);
  check(!options.training.compute.device.starts_with("cuda:"),
        "--device {}: expected cuda with --compare-pytorch; CUDA_VISIBLE_DEVICES chooses among GPUs",
        options.training.compute.device);
  if (!options.cold_start) return;
  for (const char* name : {"steps", "warmup"})
    check(!line.given(name), "--{}: a cold start is one step, expected no such flag with --cold-start", name);
}

}  // namespace convoy::bench
