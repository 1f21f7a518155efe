// Trains a network of two layers on two half moons.
#include <cstdio>
#include <numbers>

#include "../../../common/tiny_autograd.h"

using namespace tiny;

// A linear congruential generator: the same numbers on each machine.
double uniform() {
  static unsigned state = 1;
  state = state * 1664525u + 1013904223u;
  return (state >> 8) / 16777216.0;
}

Matrix random_matrix(int rows, int columns) {
  Matrix result(rows, columns);
  for (double& element : result.data) element = 2 * uniform() - 1;
  return result;
}

int main() {
  const int n = 200;
  Matrix points(n, 2), signs(n, 1);
  for (int i = 0; i < n; ++i) {
    const double angle = std::numbers::pi * uniform();
    const bool is_lower = i % 2 == 1;
    points[2 * i] = (is_lower ? 1 - std::cos(angle) : std::cos(angle)) + 0.2 * uniform() - 0.1;
    points[2 * i + 1] = (is_lower ? 0.5 - std::sin(angle) : std::sin(angle)) + 0.2 * uniform() - 0.1;
    signs[i] = is_lower ? 1 : -1;
  }
  Value x = input(points), t = input(signs);
  Value w1 = parameter(random_matrix(2, 16)), b1 = parameter(Matrix(1, 16));
  Value w2 = parameter(random_matrix(16, 1)), b2 = parameter(Matrix(1, 1));
  for (int step = 0; step <= 400; ++step) {
    Value score = add(matmul(tanh(add(matmul(x, w1), b1)), w2), b2);
    // The logistic loss: the mean of log(1 + exp(-sign score)).
    Value loss = affine(sum(log(affine(exp(affine(mul(t, score), -1, 0)), 1, 1))), 1.0 / n, 0);
    backward(loss);
    for (const Value& each : {w1, b1, w2, b2})
      for (int i = 0; i < each->value.size(); ++i) each->value[i] -= each->gradient[i];
    if (step % 100 != 0) continue;
    int right = 0;
    for (int i = 0; i < n; ++i) right += score->value[i] * signs[i] > 0;
    std::printf("step %3d: loss %.2f, %3d of %d right\n", step, loss->value[0], right, n);
  }
}
