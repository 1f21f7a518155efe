// A network, its training and its test on one page: read this first. The programs beside it do the same with
// flags, checkpoints, logs and error handling.
//
//   minimal_cifar10 [folder of CIFAR-10] [epochs]
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <exception>

#include "datasets/loader.h"
#include "datasets/readers.h"
#include "engine/autograd/backward.h"
#include "engine/ops/ops.h"
#include "engine/optim/optimizer.h"
#include "engine/optim/schedule.h"
#include "models/models.h"

using namespace convoy;

namespace {

/// Share of the test images whose largest logit is the label's.
double test_accuracy(const Model& model, const DataSet& data, const TransformSpec& transform,
                     const Device& device) {
  const NoGrad no_grad;  // keeps no activations: there will be no backward
  DataLoader loader(
      data.test, {.shuffle = false, .transform = transform.evaluation(), .max_epochs = 1, .device = device});
  std::int64_t correct = 0;
  for (const Batch& batch : loader.epoch(0))
    for (const std::int32_t hit :
         cross_entropy(model(batch.images), batch.labels).correct.to_vector<std::int32_t>())
      correct += hit;
  return static_cast<double>(correct) / static_cast<double>(data.test.size());
}

void train(const char* folder, int epochs) {
  const std::uint64_t seed = 1;
  const Device device = Device::best();
  const DataSet data = read_cifar10(folder);

  // Images are shifted by up to 4 pixels and mirrored at random, then brought to mean 0 and deviation 1.
  const TransformSpec transform = make_transform("crop=4,flip", channel_statistics(data.train), true);
  DataLoader loader(
      data.train,
      {.global_batch = 128, .seed = seed, .transform = transform, .max_epochs = epochs, .device = device});

  const Model model =
      models::resnet20({.input = data.image_shape(), .classes = 10, .seed = seed, .device = device});
  Sgd optimizer(decay_groups(model.parameters(), 5e-4), {.momentum = 0.9, .nesterov = true});
  const std::int64_t steps = loader.steps_per_epoch() * epochs;
  const Schedule rate = cosine({.peak = 0.2, .steps = steps, .warmup = steps / 5});

  const auto start = std::chrono::steady_clock::now();
  std::int64_t step = 0;
  for (int epoch = 0; epoch < epochs; ++epoch) {
    for (const Batch& batch : loader.epoch(epoch)) {
      // Forward: the operations are recorded as they run.
      const Pass pass{.training = true, .seed = seed, .epoch = epoch, .sample_ids = batch.ids};
      const Variable logits = model(batch.images, pass);
      const Variable loss =
          cross_entropy_sum(logits, batch.labels, 0.1) / static_cast<double>(batch.global_count);
      // Backward: walks the record from the loss to every parameter, and leaves a gradient with each.
      backward(loss);
      // Update: uses the gradients up, so nobody has to zero them.
      optimizer.step(rate(step++));
      if (step % 50 == 0)
        fmt::print("step {}/{}  loss {:.4f}  {:.0f} s\n", step, steps, loss.value().item(),
                   std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
    }
    fmt::print("epoch {}: test accuracy {:.2f}%\n", epoch + 1,
               100 * test_accuracy(model, data, transform, device));
  }
}

}  // namespace

int main(int argc, char** argv) {
  std::setvbuf(stdout, nullptr, _IOLBF, 0);  // each line at once, in a pipe too
  try {
    train(argc > 1 ? argv[1] : "data/cifar10", argc > 2 ? std::atoi(argv[2]) : 5);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "minimal_cifar10: error: {}\n", error.what());
    return static_cast<int>(error.code());
  } catch (const std::exception& error) {
    fmt::print(stderr, "minimal_cifar10: error: {}\n", error.what());
    return 1;
  }
}
