#include <string>

#include "program.h"

using Values = std::vector<double>;

// Compares gradients that were `before` before the call. `mistake` is a wrong contribution that has a name.
static void expect(lesson::Case& at, const char* name, const Values& actual, const Values& before,
                   const Values& contribution, const Values& mistake, const char* of_mistake) {
  Values expected = before;
  for (std::size_t i = 0; i < before.size(); ++i) expected[i] += contribution[i];
  bool is_lost = true, is_mistaken = true;
  for (std::size_t i = 0; i < before.size(); ++i) {
    is_lost = is_lost && actual[i] == contribution[i];
    is_mistaken = is_mistaken && actual[i] == before[i] + mistake[i];
  }
  at.compare(name, actual, expected,
             is_lost       ? "the gradient from another use of x is lost; add with +="
             : is_mistaken ? of_mistake
                           : "");
}

void lesson::run(Case& at) {
  const int m = at.size(0), k = at.size(1), n = at.size(2);
  const Values x = at.values<double>(n), y = at.values<double>(n), dz = at.values<double>(n);
  const Values before_x = at.values<double>(n), before_y = at.values<double>(n);
  Values dx = before_x, dy = before_y, by_y(dz), by_x(dz);
  for (std::size_t i = 0; i < dz.size(); ++i) by_y[i] *= y[i], by_x[i] *= x[i];
  mul_backward(x, y, dz, dx, dy);
  const char* const product = "it is dz, but z = x y changes by y if x changes by 1";
  expect(at, "mul_backward: dx", dx, before_x, by_y, dz, product);
  expect(at, "mul_backward: dy", dy, before_y, by_x, dz, product);

  dx = before_x;
  exp_backward(x, dz, dx);  // any values serve as z
  expect(at, "exp_backward: dx", dx, before_x, by_x, dz, "it is dz; the derivative of exp(x) is exp(x)");

  const Values a = at.values<double>(m * k), b = at.values<double>(k * n), dc = at.values<double>(m * n);
  const Values before_a = at.values<double>(m * k), before_b = at.values<double>(k * n);
  Values da = before_a, db = before_b, to_a(a.size()), to_b(b.size());
  for (int i = 0; i < m * n * k; ++i) {
    const int row = i / (n * k), column = i / k % n, at_k = i % k;
    to_a[row * k + at_k] += dc[row * n + column] * b[at_k * n + column];
    to_b[at_k * n + column] += dc[row * n + column] * a[row * k + at_k];
  }
  matmul_backward(a, b, dc, da, db, m, k, n);
  bool is_b_right = true;
  for (std::size_t i = 0; i < b.size(); ++i) is_b_right = is_b_right && db[i] == before_b[i] + to_b[i];
  Values expected = before_a;
  for (std::size_t i = 0; i < a.size(); ++i) expected[i] += to_a[i];
  at.compare("matmul_backward: da", da, expected,
             is_b_right ? "da = dc b, with b transposed; db, with a transposed, is right" : "");
  expect(at, "matmul_backward: db", db, before_b, to_b, to_b, "");
}
