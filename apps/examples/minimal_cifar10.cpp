// A complete training program on one page: data, network, training loop and test. Read this file first.
//
//   minimal_cifar10 [directory of CIFAR-10, default data/cifar10] [optimizer steps, default 5 epochs]
//
// If the directory does not exist, the program trains on generated images. The other programs add flags,
// checkpoints and logs; minimal_cifar10_ranks.cpp is the same training on several ranks.
#include <convoy/convoy.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <string_view>

using namespace convoy;

namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kEpochs = 5, kBatchSize = 128;
constexpr double kPeakRate = 0.2, kMomentum = 0.9, kWeightDecay = 5e-4, kLabelSmoothing = 0.1;

data::DataSet load_data(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory)) return data::read_cifar10(directory);
  fmt::print("{} not found: training on generated images (10 shapes, 32x32 pixels)\n", directory.string());
  return data::generate_shapes();
}

/// Returns the fraction of the test images whose largest logit is that of their label.
double test_accuracy(const models::Model& model, const data::ImageSet& test,
                     const data::TransformSpec& transform, const DeviceContext& device) {
  const NoGrad no_grad;  // records no graph and keeps no activations, since no backward follows
  data::DataLoader loader(test, {.shuffle = false, .transform = transform.evaluation(), .device = device});
  std::int64_t correct = 0;
  for (const data::Batch& batch : loader.epoch(0)) {
    const CrossEntropy result = cross_entropy(model(batch.images), batch.labels);
    for (const std::int32_t is_correct : result.correct.to_vector<std::int32_t>()) correct += is_correct;
  }
  return static_cast<double>(correct) / static_cast<double>(test.size());
}

void train(const std::filesystem::path& directory, std::int64_t steps) {
  const DeviceContext device = Device::best();
  const data::DataSet data = load_data(directory);

  // Shifts by up to 4 pixels and mirrors at random, then normalizes to mean 0 and standard deviation 1.
  const data::TransformSpec transform =
      data::make_transform("crop=4,flip", data::channel_statistics(data.train));
  data::DataLoader loader(
      data.train, {.global_batch = kBatchSize, .seed = kSeed, .transform = transform, .device = device});
  if (steps == 0) steps = kEpochs * loader.steps_per_epoch();

  const models::Model model =
      models::resnet20({.input = data.image_shape(), .seed = kSeed, .device = device});
  fmt::print("{}: {} parameters, {} training images, {}\n", model.name(), model.parameter_count(),
             data.train.size(), device.name());
  optim::Sgd optimizer(optim::decay_groups(model.parameters(), kWeightDecay),
                       {.momentum = kMomentum, .nesterov = true});
  const optim::Schedule rate = optim::cosine({.peak = kPeakRate, .steps = steps, .warmup = steps / 5});

  for (std::int64_t step = 0, epoch = 0; step < steps; ++epoch) {
    for (const data::Batch& batch : loader.epoch(epoch)) {
      if (step == steps) break;
      // Forward: every operation records how to compute its gradient.
      const nn::ForwardContext context{
          .training = true, .seed = kSeed, .epoch = epoch, .sample_ids = batch.ids};
      const Variable logits = model(batch.images, context);
      const Variable loss =
          cross_entropy_sum(logits, batch.labels, kLabelSmoothing) / static_cast<double>(batch.global_count);
      // Backward: walks the recorded graph from the loss to the parameters and overwrites their gradients.
      backward(loss);
      optimizer.step(rate(step++));
      // The first loss should be near ln 10 = 2.30, the loss of a guess among 10 classes.
      if (step == 1 || step % 50 == 0)
        fmt::print("step {}/{}  loss {:.4f}\n", step, steps, loss.value().item());
    }
    const double accuracy = test_accuracy(model, data.test, transform, device);
    fmt::print("epoch {}: test accuracy {:.2f}%\n", epoch + 1, 100 * accuracy);
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && argv[1][0] == '-') {
    fmt::print("usage: minimal_cifar10 [directory, default data/cifar10] [steps, default 5 epochs]\n");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // flushes each line, also into a pipe
  try {
    train(argc > 1 ? argv[1] : "data/cifar10", argc > 2 ? std::atoll(argv[2]) : 0);
    return 0;
  } catch (const std::exception& error) {
    fmt::print(stderr, "minimal_cifar10: error: {}\n", error.what());
    const auto* const known = dynamic_cast<const Error*>(&error);
    return known != nullptr ? static_cast<int>(known->code()) : 1;
  }
}
