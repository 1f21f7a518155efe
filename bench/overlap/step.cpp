#include "bench/overlap/step.h"

#include <algorithm>
#include <functional>
#include <variant>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/runtime/cuda_graph.h"
#include "convoy/models/models.h"

namespace convoy::bench {
namespace {

constexpr double kLearningRate = 1e-4;  // small, so that values stay finite over many steps on the same batch
constexpr int kWarmupSteps = 2;         // the first step allocates buffers, the second autotunes algorithms

models::Model make_model(const StepChoice& choice, const DeviceContext& device) {
  models::Model model =
      models::make(choice.model, {.input = {choice.image_size, choice.image_size, 3}, .device = device});
  model.to(choice.precision.parameters);
  if (choice.precision.is_half()) model.root().keep_low_precision_copies(choice.precision.compute);
  return model;
}

Tensor make_labels(std::int64_t count, const DeviceContext& device) {
  constexpr std::int64_t kClasses = 10;
  std::vector<std::int32_t> labels;
  for (std::int64_t i = 0; i < count; ++i) labels.push_back(static_cast<std::int32_t>(i % kClasses));
  return Tensor::from(labels, {count}, device);
}

std::string to_string(const DeviceContext& device) {
  const Stream stream = device.stream();
  const auto* cpu = std::get_if<std::reference_wrapper<CpuStream>>(&stream);
  if (cpu == nullptr) return device.hardware();
  const int threads = cpu->get().threads();
  return fmt::format("cpu, {} thread{}", threads, threads == 1 ? "" : "s");
}

}  // namespace

LocalStep::LocalStep(const StepChoice& choice, const DeviceContext& device)
    : device_(device),
      model_(make_model(choice, device)),
      parameters_(model_.parameters()),
      images_(Tensor::full({choice.batch, choice.image_size, choice.image_size, 3}, 0.5,
                           choice.precision.compute, device)),
      labels_(make_labels(choice.batch, device)),
      lr_(Tensor::full({1}, kLearningRate, DType::f64, device)),
      optimizer_(std::make_unique<optim::Sgd>(optim::decay_groups(parameters_, 5e-4),
                                              optim::SgdSettings{.momentum = 0.9})),
      begin_(Event::timed(device.stream())),
      forward_(Event::timed(device.stream())),
      backward_(Event::timed(device.stream())),
      summed_(Event::timed(device.stream())),
      end_(Event::timed(device.stream())) {}

void LocalStep::run(dist::GradientReducer* gradients) {
  begin_.record();
  const auto count = static_cast<double>(labels_.size(0));
  const Variable loss = cross_entropy_sum(model_(images_, {.training = true}), labels_) / count;
  forward_.record();
  if (gradients != nullptr) gradients->begin_step(true);
  backward(loss);
  backward_.record();
  if (gradients != nullptr) gradients->finish();
  summed_.record();
  optimizer_->step(lr_);
  end_.record();
}

double median(std::vector<double> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

StepRecord record_step(const StepChoice& choice, int steps, const DeviceContext& device) {
  LocalStep step(choice, device);
  const std::vector<nn::NamedParameter>& parameters = step.parameters();
  std::vector<Event> ready;
  for (std::size_t p = 0; p < parameters.size(); ++p) ready.push_back(Event::timed(device.stream()));
  for (std::size_t p = 0; p < parameters.size(); ++p)
    parameters[p].variable.on_grad_ready([&ready, p] { ready[p].record(); });

  for (int warmup = 0; warmup < kWarmupSteps; ++warmup) {
    device.set_autotune(warmup > 0);
    step.run();
  }
  device.synchronize();
  std::unique_ptr<CudaGraph> graph;
  if (CudaGraph::supported(device)) graph = std::make_unique<CudaGraph>(device, [&] { step.run(); });

  std::vector<double> step_ms, backward_ms;
  std::vector<std::vector<double>> ready_ms(parameters.size());
  for (int i = 0; i < steps; ++i) {
    if (graph) {
      graph->replay();
    } else {
      step.run();
    }
    step_ms.push_back(step.step_ms());
    backward_ms.push_back(step.backward_ms());
    for (std::size_t p = 0; p < parameters.size(); ++p)
      ready_ms[p].push_back(elapsed_ms(step.backward_begin(), ready[p]));
  }
  for (const nn::NamedParameter& parameter : parameters) parameter.variable.on_grad_ready(nullptr);

  StepRecord record{.model = choice.model,
                    .batch = choice.batch,
                    .precision = choice.precision.name,
                    .device = to_string(device),
                    .dtype = choice.precision.parameters,
                    .step_ms = median(step_ms),
                    .backward_ms = median(backward_ms)};
  for (std::size_t p = 0; p < parameters.size(); ++p)
    record.gradients.push_back({.name = parameters[p].name,
                                .numel = parameters[p].variable.value().numel(),
                                .ready_ms = median(ready_ms[p])});
  return record;
}

}  // namespace convoy::bench
