// Callbacks in a training loop of one's own: the monitors, checkpoints and early stopping that convoy-train uses, and a
// callback of this program.
//
//   callbacks [directory of MNIST, default data/mnist] [epochs, default 10] [output directory, default runs/callbacks]
//
// If the directory does not exist, the program trains on a few generated images.
#include <convoy/convoy.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>

using namespace convoy;

namespace {

constexpr std::int64_t kBatchSize = 128;
constexpr double kRate = 0.05;

/// Ends the training once it is right about almost all training samples: from then on it memorizes.
class OverfittingGuard final : public training::Callback {
 public:
  explicit OverfittingGuard(double limit) : limit_(limit) {}
  void on_epoch(const training::EpochResult& result) override {
    is_over_ = *result.accuracy > limit_;
    fmt::print("epoch {}: training accuracy {:.2f}%{}\n", result.epoch + 1, 100 * *result.accuracy,
               is_over_ ? ", enough" : "");
  }
  bool should_stop() const override { return is_over_; }

 private:
  double limit_;
  bool is_over_ = false;
};

std::int64_t count_of(const Tensor& correct) {
  return static_cast<std::int64_t>(sum(Variable(correct.to(DType::f32))).value().item());
}

training::EvaluationResult evaluate(const models::Model& model, const data::ImageSet& test,
                                    const data::TransformSpec& transform, const DeviceContext& device) {
  const NoGrad no_grad;
  data::DataLoader loader(test, {.shuffle = false, .transform = transform, .device = device});
  training::EvaluationResult result{.count = test.size()};
  for (const data::Batch& batch : loader.epoch(0)) {
    const CrossEntropy entropy = cross_entropy(model(batch.images), batch.labels);
    result.accuracy += static_cast<double>(count_of(entropy.correct)) / static_cast<double>(test.size());
    result.loss += entropy.loss.value().item() / static_cast<double>(test.size());
  }
  return result;
}

void train(const std::filesystem::path& directory, std::int64_t epochs, const std::filesystem::path& out) {
  const DeviceContext device = Device::best();
  const bool has_data = std::filesystem::exists(directory);
  if (!has_data) fmt::print("{} not found: training on generated images\n", directory.string());
  const data::DataSet data =
      has_data ? data::read_mnist(directory) : data::generate_shapes({.train = 2560, .test = 512});
  const data::TransformSpec transform = data::make_transform("none", data::channel_statistics(data.train));
  data::DataLoader loader(data.train, {.global_batch = kBatchSize, .transform = transform, .device = device});
  const models::Model model = models::lenet(
      {.input = data.image_shape(), .classes = static_cast<int>(data.classes.size()), .device = device});
  optim::Sgd optimizer(optim::decay_groups(model.parameters(), 5e-4), {.momentum = 0.9, .nesterov = true});

  training::LossMonitor losses(/*every=*/20);
  training::TimeMonitor times(/*prints=*/true);
  io::CheckpointDirectory checkpoints(out / "checkpoints");
  training::ModelCheckpoint saver(checkpoints, model.root(), optimizer, {.model_name = model.name()});
  training::EarlyStopping stopping({.patience = 3});
  OverfittingGuard guard(0.98);
  training::CallbackList callbacks({&losses, &times, &guard, &stopping, &saver});

  for (std::int64_t epoch = 0, step = 0; epoch < epochs && !callbacks.should_stop(); ++epoch) {
    for (const data::Batch& batch : loader.epoch(epoch)) {
      const nn::ForwardContext context{.training = true, .epoch = epoch, .sample_ids = batch.ids};
      const double scale = 1 / static_cast<double>(batch.global_count);
      const CrossEntropy entropy =
          cross_entropy(model(batch.images, context), batch.labels, {.scale = scale});
      backward(entropy.loss);
      optimizer.step(kRate);
      callbacks.on_step({.step = ++step,
                         .epoch = epoch,
                         .samples = batch.global_count,
                         .loss = entropy.loss.value().item(),
                         .correct = count_of(entropy.correct)});
    }
    callbacks.on_epoch(losses.end_epoch());
    training::EvaluationResult evaluation = evaluate(model, data.test, transform, device);
    evaluation.step = step;
    callbacks.on_evaluation(evaluation);
    fmt::print("epoch {}: test accuracy {:.2f}%{}\n", epoch + 1, 100 * evaluation.accuracy,
               stopping.is_best() ? " (best)" : "");
  }
  fmt::print("{:.0f} samples/s; checkpoint of step {} in {}\n", times.total().samples_per_second(),
             saver.saved_step(), out.string());
}

}  // namespace

int main(int argc, char** argv) {
  const std::int64_t epochs = argc > 2 ? std::atoll(argv[2]) : 10;
  if (argc > 4 || epochs < 1 || (argc > 1 && argv[1][0] == '-')) {
    fmt::print(
        "usage: callbacks [directory, default data/mnist] [epochs, default 10] [output, default runs/callbacks]\n");
    return argc == 2 && std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // flushes each line, also into a pipe
  try {
    train(argc > 1 ? argv[1] : "data/mnist", epochs, argc > 3 ? argv[3] : "runs/callbacks");
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "callbacks: error: {}\n", error.what());
    const auto* const known = dynamic_cast<const Error*>(&error);
    return known != nullptr ? static_cast<int>(known->code()) : 1;
  }
}
