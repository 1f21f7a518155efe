// A network of one's own on a data set of one's own: separates two interleaved half circles, "two moons".
//
//   two_moons [optimizer steps, default 400]
#include <convoy/convoy.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <numbers>
#include <random>
#include <string_view>

using namespace convoy;

namespace {

/// Points [N, 2] with their labels, i32 [N].
struct Moons {
  Tensor points, labels;

  Moons(std::int64_t n, unsigned seed, const DeviceContext& device) {
    std::mt19937 random(seed);
    std::normal_distribution<float> noise(0, 0.1F);
    std::vector<float> values;
    std::vector<std::int32_t> moons;
    for (std::int64_t i = 0; i < n; ++i) {
      const int moon = static_cast<int>(i % 2);
      const float angle = std::numbers::pi_v<float> * static_cast<float>(i) / static_cast<float>(n);
      const float side = moon == 0 ? 1 : -1;
      values.push_back(side * std::cos(angle) + static_cast<float>(moon) + noise(random));
      values.push_back(side * std::sin(angle) + 0.5F * static_cast<float>(moon) + noise(random));
      moons.push_back(moon);
    }
    points = Tensor::from(values, {n, 2}, device);
    labels = Tensor::from(moons, {n}, device);
  }
};

double accuracy(nn::Module& net, const Moons& moons) {
  const NoGrad no_grad;
  double correct = 0;
  for (const auto is_correct :
       cross_entropy(net(moons.points), moons.labels).correct.to_vector<std::int32_t>())
    correct += is_correct;
  return correct / static_cast<double>(moons.labels.numel());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && argv[1][0] == '-') {
    fmt::print("usage: two_moons [steps, default 400]\n");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  const int steps = argc > 1 ? std::atoi(argv[1]) : 400;
  const DeviceContext device = Device::best();
  const Moons train(512, 1, device), test(512, 2, device);
  nn::Sequential net =
      nn::sequential(nn::Linear(2, 16), nn::Tanh(), nn::Linear(16, 16), nn::Tanh(), nn::Linear(16, 2));
  net.to(device);
  optim::Adam optimizer(net.parameters(), {});

  for (int step = 1; step <= steps; ++step) {
    const Variable loss =
        cross_entropy_sum(net(train.points), train.labels) / static_cast<double>(train.labels.numel());
    backward(loss);
    optimizer.step(0.01);
    if (step == 1 || step % 100 == 0) fmt::print("step {}  loss {:.4f}\n", step, loss.value().item());
  }
  fmt::print("test accuracy {:.1f}%\n", 100 * accuracy(net, test));
}
