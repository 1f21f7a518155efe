// convoy-bench-layers: measures convolutions and batch norms in isolation, relative to a whole training step.
#include <chrono>
#include <map>
#include <nlohmann/json.hpp>
#include <numeric>

#include "bench/programs/results.h"
#include "convoy/apps/common/command_line.h"
#include "convoy/apps/common/compute.h"
#include "convoy/apps/common/precision.h"
#include "convoy/apps/common/run_main.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/kernels/base/check.h"
#include "convoy/models/models.h"

namespace convoy::bench {
namespace {

using Json = nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

/// The network and batch of a step.
struct StepChoice {
  std::string model = "resnet18";
  std::int64_t batch = 128;
  std::int64_t image_size = 32;
};

/// A convolution and the batch norm that follows it.
struct LayerPair {
  std::string name;  // the convolution's: "layer2.0.conv1"
  std::string type;  // "Conv2d 64 -> 128, 3x3 stride 2 padding 1"
  nn::Module* convolution = nullptr;
  nn::Module* norm = nullptr;
  Shape input, output;        // including the batch dimension
  bool takes_images = false;  // the gradient of the input is not computed
};

/// The times per round, in milliseconds: of each pair (forward and backward with all gradients) and of a
/// whole step.
struct LayerShare {
  std::vector<LayerPair> pairs;
  std::vector<std::vector<double>> pair_ms;  // [rounds, pairs]
  std::vector<double> step_ms;               // [rounds]

  /// Returns the sum of the pairs' times divided by the time of the step, per round.
  std::vector<double> shares() const {
    std::vector<double> shares;
    for (std::size_t round = 0; round < step_ms.size(); ++round)
      shares.push_back(std::accumulate(pair_ms[round].begin(), pair_ms[round].end(), 0.0) / step_ms[round]);
    return shares;
  }
};

double ms_since(Clock::time_point begin) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begin).count();
}

bool is_convolution(const nn::LayerSummary& row) { return row.type.starts_with("Conv2d"); }
bool is_norm(const nn::LayerSummary& row) { return row.type.starts_with("BatchNorm2d"); }

/// Returns the module of each path.
std::map<std::string, nn::Module*> modules_by_path(const models::Model& model) {
  std::map<std::string, nn::Module*> found;
  for (nn::Module* module : model.root().modules()) found[module->path()] = module;
  return found;
}

Shape with_batch(Shape shape, std::int64_t batch) { return {batch, shape[1], shape[2], shape[3]}; }

/// Returns pseudo-random values in [-1, 1): not constant, and without denormals, which would change the
/// timing.
Tensor ordinary_values(const Shape& shape, const DeviceContext& device) {
  std::vector<float> values(static_cast<std::size_t>(shape.numel()));
  std::uint32_t state = 1;
  for (float& value : values) {
    state = state * 1664525u + 1013904223u;  // linear congruential generator, Knuth
    value = static_cast<float>(state >> 8) * 0x1p-23f - 1.0f;
  }
  return Tensor::from(values, shape, device);
}

double time_pair(const LayerPair& pair, const DeviceContext& device) {
  const Variable x(ordinary_values(pair.input, device), !pair.takes_images);
  const Tensor dy = ordinary_values(pair.output, device);
  const nn::ForwardContext pass{.training = true};
  const Clock::time_point begin = Clock::now();
  backward((*pair.norm)((*pair.convolution)(x, pass), pass), {.seed = dy});
  return ms_since(begin);
}

/// A repeatable training step of a network.
class LocalStep {
 public:
  LocalStep(const models::Model& model, const StepChoice& choice, const DeviceContext& device)
      : model_(model),
        images_(
            Tensor::full({choice.batch, choice.image_size, choice.image_size, 3}, 0.5, DType::f32, device)),
        labels_(Tensor::full({choice.batch}, 1, DType::i32, device)),
        lr_(Tensor::full({1}, 1e-4, DType::f64,
                         device)),  // small, so that values stay finite over many steps
        optimizer_(optim::decay_groups(model.parameters(), 5e-4), {.momentum = 0.9}) {}

  double time_ms() {
    const Clock::time_point begin = Clock::now();
    const auto count = static_cast<double>(labels_.size(0));
    backward(cross_entropy_sum(model_(images_, {.training = true}), labels_) / count);
    optimizer_.step(lr_);
    return ms_since(begin);
  }

 private:
  const models::Model& model_;
  Tensor images_, labels_, lr_;
  optim::Sgd optimizer_;
};

std::vector<double> column(const std::vector<std::vector<double>>& rows, std::size_t at) {
  std::vector<double> values;
  for (const std::vector<double>& row : rows) values.push_back(row[at]);
  return values;
}

/// Returns all pairs in the order of execution; `model` must outlive them. Throws UsageError if the network
/// has no convolution, or one that is not followed by a batch norm.
std::vector<LayerPair> layer_pairs(const models::Model& model, std::int64_t batch) {
  const Shape image = model.input();
  std::vector<nn::LayerSummary> rows;
  model.root().infer({1, image[0], image[1], image[2]}, &rows);
  const std::map<std::string, nn::Module*> modules = modules_by_path(model);
  std::vector<LayerPair> pairs;
  Shape last{1, image[0], image[1], image[2]};
  Shape block_input = last;
  for (std::size_t i = 0; i < rows.size(); last = rows[i++].outputs.front()) {
    if (!is_convolution(rows[i])) continue;
    const std::string& name = rows[i].name;
    check(i + 1 < rows.size() && is_norm(rows[i + 1]),
          "--model {}: found '{}' without a batch norm after it, expected one after each convolution",
          model.name(), name);
    if (name.ends_with(".conv1")) block_input = last;
    const Shape input = name.ends_with("downsample.0") ? block_input : last;
    pairs.push_back({.name = name,
                     .type = rows[i].type,
                     .convolution = modules.at(name),
                     .norm = modules.at(rows[i + 1].name),
                     .input = with_batch(input, batch),
                     .output = with_batch(rows[i].outputs.front(), batch),
                     .takes_images = i == 0});
  }
  check(!pairs.empty(), "--model {}: found no convolution, expected at least one", model.name());
  return pairs;
}

/// Measures the pairs and the step in alternation, after `warmup` rounds that do not count. The step is forward,
/// backward and SGD with momentum on a batch of constant images. `device` must be a CPU.
LayerShare measure_layers(const StepChoice& choice, int rounds, int warmup, const DeviceContext& device) {
  const models::Model model =
      models::make(choice.model, {.input = {choice.image_size, choice.image_size, 3}, .device = device});
  LayerShare share{.pairs = layer_pairs(model, choice.batch), .pair_ms = {}, .step_ms = {}};
  const models::Model stepped =
      models::make(choice.model, {.input = {choice.image_size, choice.image_size, 3}, .device = device});
  LocalStep step(stepped, choice, device);
  for (int round = -warmup; round < rounds; ++round) {
    std::vector<double> pair_ms;
    for (const LayerPair& pair : share.pairs) pair_ms.push_back(time_pair(pair, device));
    const double step_ms = step.time_ms();
    if (round < 0) continue;
    share.pair_ms.push_back(std::move(pair_ms));
    share.step_ms.push_back(step_ms);
  }
  return share;
}

Json to_json(const LayerShare& share) {
  Json pairs = Json::array();
  for (std::size_t i = 0; i < share.pairs.size(); ++i)
    pairs.push_back({{"name", share.pairs[i].name},
                     {"type", share.pairs[i].type},
                     {"input", share.pairs[i].input.text()},
                     {"output", share.pairs[i].output.text()},
                     {"ms", to_json(spread_of(column(share.pair_ms, i)))}});
  return {{"step_ms", to_json(spread_of(share.step_ms))},
          {"share", to_json(spread_of(share.shares()))},
          {"rounds", share.step_ms.size()},
          {"pairs", pairs}};
}

void print(const LayerShare& share) {
  fmt::print("| convolution with batch norm | type | ms |\n|---|---|---|\n");
  for (std::size_t i = 0; i < share.pairs.size(); ++i)
    fmt::print("| {} | {} | {:.3f} |\n", share.pairs[i].name, share.pairs[i].type,
               spread_of(column(share.pair_ms, i)).median);
  const Spread fraction = spread_of(share.shares());
  fmt::print(
      "\nstep: {:.3f} ms; convolutions and batch norms: {:.1f} % of it (minimum {:.1f}, maximum {:.1f})\n",
      spread_of(share.step_ms).median, 100 * fraction.median, 100 * fraction.lowest, 100 * fraction.highest);
}

int run(int argc, char** argv) {
  ComputeOptions compute{.device = "cpu"};
  StepChoice choice;
  std::int64_t rounds = 5, warmup = 2;
  std::string json;
  CommandLine line("convoy-bench-layers",
                   "Compares the time of a network's convolutions and batch norms, one by one, with whole "
                   "training steps on the CPU.");
  line.group("Step");
  line.add("model", &choice.model, "Network", {.value = "NAME", .choices = models::names()});
  line.add("batch-size", &choice.batch, "Batch size (images)", {.value = "N", .minimum = 1, .maximum = 1e6});
  line.add("image-size", &choice.image_size, "Image size (pixels per side)",
           {.value = "PIXELS", .minimum = 8, .maximum = 4096});
  add_compute_flags(line, compute);
  line.group("Measurement");
  line.add("rounds", &rounds, "Measured rounds; results are the median, minimum and maximum",
           {.value = "N", .minimum = 1, .maximum = 1e4});
  line.add("warmup", &warmup, "Warmup rounds", {.value = "N", .minimum = 0, .maximum = 1e4});
  line.add("json", &json, "Result file (JSON)", {.value = "FILE"});
  if (!line.parse(argc, argv)) return 0;
  check(compute.device == "cpu", "--device: found {}, expected cpu", compute.device);
  check_output_file("--json", json);
  const DeviceContext device = open_device(compute, parse_precision("fp32"));
  warn_if_busy("convoy-bench-layers");
  const LayerShare share = measure_layers(choice, static_cast<int>(rounds), static_cast<int>(warmup), device);
  print(share);
  Json report = {{"model", choice.model},
                 {"batch_size", choice.batch},
                 {"image_size", choice.image_size},
                 {"threads", compute.threads}};
  report.update(to_json(share));
  write_json(json, report);
  return 0;
}

}  // namespace
}  // namespace convoy::bench

int main(int argc, char** argv) {
  return convoy::run_main("convoy-bench-layers", [&] { return convoy::bench::run(argc, argv); });
}
