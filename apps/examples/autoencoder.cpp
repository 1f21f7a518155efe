// A convolutional autoencoder: compresses images of 32x32x3 numbers to 128 and reconstructs them.
//
//   autoencoder [directory of CIFAR-10, default data/cifar10] [optimizer steps, default 1000]
//
// If the directory does not exist, the program trains on generated images. It writes autoencoder.png: test
// images in the upper row, their reconstructions in the lower row.
#include <convoy/convoy.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string_view>

using namespace convoy;

namespace {

constexpr std::uint64_t kSeed = 1;
constexpr std::int64_t kBatchSize = 128;

/// The layers of the encoder, [N, 32, 32, 3] to [N, 4, 4, 8], and of the decoder, back to [N, 32, 32, 3].
nn::Sequential make_autoencoder() {
  const auto down = [](int in, int out) {
    return nn::Conv2d(in, out, {.kernel = 4, .stride = 2, .padding = 1});
  };
  const auto up = [](int in, int out) {
    return nn::ConvTranspose2d(in, out, {.kernel = 4, .stride = 2, .padding = 1});
  };
  return nn::Sequential({{"down1", down(3, 32)},
                         {"gelu1", nn::GELU()},
                         {"down2", down(32, 64)},
                         {"gelu2", nn::GELU()},
                         {"code", down(64, 8)},
                         {"up1", up(8, 64)},
                         {"gelu3", nn::GELU()},
                         {"up2", up(64, 32)},
                         {"gelu4", nn::GELU()},
                         {"up3", up(32, 3)},
                         {"sigmoid", nn::Sigmoid()}});
}

data::DataSet load_data(const std::filesystem::path& directory) {
  if (std::filesystem::exists(directory)) return data::read_cifar10(directory);
  fmt::print("{} not found: training on generated images (10 shapes, 32x32 pixels)\n", directory.string());
  return data::generate_shapes();
}

/// Pixels from 0 to 1, neither augmented nor normalized.
data::LoaderOptions loader_options(const DeviceContext& device) {
  return {.global_batch = kBatchSize,
          .seed = kSeed,
          .transform = data::make_transform("none", {.mean = {0, 0, 0}, .std = {1, 1, 1}}),
          .device = device};
}

/// Returns the mean squared error over the test images, and writes eight of them with their reconstructions.
double test(const models::Model& model, const data::ImageSet& images, const DeviceContext& device) {
  const NoGrad no_grad;
  data::DataLoader loader(images, loader_options(device));
  double sum = 0;
  for (const data::Batch& batch : loader.epoch(0)) {
    const Variable x(batch.images);
    const Variable y = model(x);
    if (sum == 0) {
      const Variable both = concat({slice(x, 0, 0, 8), slice(y, 0, 0, 8)}, 0);  // two rows of eight
      data::write_png_grid("autoencoder.png", both.value(), /*columns=*/8);
    }
    sum += mse_loss(y, x).value().item() * static_cast<double>(batch.labels.size(0));
  }
  return sum / static_cast<double>(images.size());
}

void train(const std::filesystem::path& directory, std::int64_t steps) {
  const DeviceContext device = Device::best();
  const data::DataSet data = load_data(directory);
  data::DataLoader loader(data.train, loader_options(device));
  const models::Model model("autoencoder", make_autoencoder(), data.image_shape(), kSeed, device);
  fmt::print("{}", model.summary());
  optim::Adam optimizer(model.parameters(), {});
  const optim::Schedule rate = optim::cosine({.peak = 2e-3, .steps = steps, .warmup = steps / 10});
  for (std::int64_t step = 0, epoch = 0; step < steps; ++epoch) {
    for (const data::Batch& batch : loader.epoch(epoch)) {
      if (step == steps) break;
      const Variable x(batch.images);
      const Variable loss = mse_loss(model(x, {.training = true}), x);
      backward(loss);
      optimizer.step(rate(step++));
      if (step == 1 || step % 100 == 0)
        fmt::print("step {}/{}  mean squared error {:.5f}\n", step, steps, loss.value().item());
    }
  }
  const double error = test(model, data.test, device);
  fmt::print("test: mean squared error {:.5f}, {:.1f} dB; see autoencoder.png\n", error,
             -10 * std::log10(error));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && argv[1][0] == '-') {
    fmt::print("usage: autoencoder [directory, default data/cifar10] [steps, default 1000]\n");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    train(argc > 1 ? argv[1] : "data/cifar10", argc > 2 ? std::atoll(argv[2]) : 1000);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "autoencoder: error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
