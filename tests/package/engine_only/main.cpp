// Fits y = 2 x - 1 by gradient descent, with the engine alone.
#include <convoy/convoy.h>

#include <cmath>
#include <cstdio>

int main() {
  const convoy::DeviceContext device = convoy::Device::cpu();
  const convoy::Variable x(convoy::Tensor::from<float>({-1, 0, 1, 2}, {4, 1}, device));
  const convoy::Variable y(convoy::Tensor::from<float>({-3, -1, 1, 3}, {4, 1}, device));
  const convoy::Variable weight(convoy::Tensor::zeros({1, 1}, convoy::DType::f32, device), true);
  const convoy::Variable bias(convoy::Tensor::zeros({1}, convoy::DType::f32, device), true);
  convoy::optim::Sgd optimizer({{"weight", weight, convoy::nn::ParameterKind::weight},
                                {"bias", bias, convoy::nn::ParameterKind::bias}},
                               {});
  for (int step = 0; step < 200; ++step) {
    const convoy::Variable error = convoy::linear(x, weight, bias) + y * -1;
    convoy::backward(convoy::mean(error * error));
    optimizer.step(0.2);
  }
  const double slope = weight.value().item(), offset = bias.value().item();
  // Options are named, and those that are not are their defaults: no warning of the strictest compiler.
  const convoy::Variable points(convoy::Tensor::full({1, 3, 2}, 0.5, convoy::DType::f32, device));
  const convoy::Variable attended =
      convoy::scaled_dot_product_attention(points, points, points, {.causal = true});
  if (attended.shape() != points.shape()) return 1;
  std::printf("Convoy %s: y = %.3f x + %.3f\n", convoy::kVersion, slope, offset);
  return std::abs(slope - 2) < 1e-3 && std::abs(offset + 1) < 1e-3 ? 0 : 1;
}
