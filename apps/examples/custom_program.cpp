// A program of one's own with all flags of convoy-train: it adds a network, a data set and a callback.
//
//   custom_program --model gated --dataset stripes --epochs 2 --out /tmp/stripes
//   custom_program evaluate --checkpoint /tmp/stripes
//   mpirun -n 2 custom_program --model gated --dataset cifar10
#include <convoy/convoy.h>
#include <fmt/format.h>

#include <algorithm>
#include <random>

using namespace convoy;

namespace {

/// A convolution whose channels are scaled by a gate, a learned function of the mean over all pixels.
class GatedConv final : public nn::Module {
 public:
  GatedConv(int in, int out)
      : conv_(add_child("conv", nn::Conv2d(in, out, {.padding = 1}))),
        pool_(add_child("pool", nn::GlobalAvgPool2d())),
        gate_(add_child("gate", nn::Linear(out, out))) {}

 private:
  Variable forward(const Variable& x, const nn::ForwardContext& context) override {
    const Variable y = conv_(x, context, {.activation = FusedActivation::relu});
    const Variable gate = sigmoid(gate_(pool_(y, context), context));  // [N, C]
    return y * unsqueeze(unsqueeze(gate, 1), 1);                       // [N, H, W, C] * [N, 1, 1, C]
  }
  nn::Layer conv_, pool_, gate_;
};

models::Model make_gated(const models::Options& options) {
  const auto channels = static_cast<int>(options.input[2]);
  nn::Sequential net({{"gated1", GatedConv(channels, 16)},
                      {"pool1", nn::MaxPool2d(2)},
                      {"gated2", GatedConv(16, 32)},
                      {"pool2", nn::GlobalAvgPool2d()},
                      {"fc", nn::Linear(32, options.classes)}});
  return {"gated", std::move(net), options.input, options.seed, options.device};
}

/// Grey images of 16x16 pixels with horizontal, vertical or diagonal stripes, and noise.
data::ImageSet make_stripes(std::int64_t count, std::uint64_t seed) {
  constexpr std::int64_t kSide = 16;
  std::mt19937_64 random(seed);
  std::uniform_int_distribution<int> phase(0, 7), noise(-60, 60);
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  for (std::int64_t n = 0; n < count; ++n) {
    const int direction = static_cast<int>(n % 3), shift = phase(random);
    labels.push_back(direction);
    for (int y = 0; y < kSide; ++y)
      for (int x = 0; x < kSide; ++x) {
        const int position = shift + (direction == 0 ? y : direction == 1 ? x : x + y);
        pixels.push_back(
            static_cast<std::uint8_t>(std::clamp((position % 8 < 4 ? 160 : 96) + noise(random), 0, 255)));
      }
  }
  return {.images = Tensor::from(pixels, {count, kSide, kSide, 1}, Device::cpu()),
          .labels = Tensor::from(labels, {count}, Device::cpu())};
}

data::DataSet read_stripes(const std::filesystem::path&, const data::ReadOptions& options) {
  return {.name = "stripes",
          .classes = {"horizontal", "vertical", "diagonal"},
          .train = make_stripes(3000, options.seed),
          .test = make_stripes(600, options.seed + 1),
          .note = "generated stripes",
          .warnings = {}};
}

/// Prints the accuracy of each evaluation that is better than all before.
class BestPrinter final : public training::Callback {
  void on_evaluation(const training::EvaluationResult& result) override {
    if (result.is_best)
      fmt::print("best so far after step {}: {:.1f}%\n", result.step, 100 * result.accuracy);
  }
};

}  // namespace

int main(int argc, char** argv) {
  models::add({.name = "gated", .make = make_gated});
  data::add({.name = "stripes", .read = read_stripes, .image_shape = {16, 16, 1}, .classes = 3});
  BestPrinter printer;
  return run_program(argc, argv, {&printer});
}
