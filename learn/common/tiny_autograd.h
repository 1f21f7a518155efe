// Reverse-mode automatic differentiation of matrices, in less than 200 lines of C++20 and nothing else.
// Chapter 4 of the book explains it: learn/book/04-autograd-in-200-lines.md.
#pragma once

#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

namespace tiny {

/// A matrix of doubles, row after row.
struct Matrix {
  int rows, columns;
  std::vector<double> data;

  explicit Matrix(int rows = 0, int columns = 0, double value = 0)
      : rows(rows), columns(columns), data(static_cast<std::size_t>(rows * columns), value) {}
  int size() const { return rows * columns; }
  double& operator[](int i) { return data[static_cast<std::size_t>(i)]; }
  double operator[](int i) const { return data[static_cast<std::size_t>(i)]; }
  double at(int row, int column) const { return (*this)[row * columns + column]; }
};

struct Node;
/// A value of the graph. Copies refer to the same node.
using Value = std::shared_ptr<Node>;

/// Where a backward function puts the gradient of one input.
class Slot {
 public:
  explicit Slot(Node& input) : input_(input) {}
  /// Sets element i of the gradient to f(i), for all i; from the second contribution on, adds f(i) to it.
  template <class F>
  void put(F f);

 private:
  Node& input_;
};

using Backward = std::function<void(const Matrix& dy, std::vector<Slot>& inputs)>;

/// A value, the operation that computed it, and its gradient. A leaf has no operation.
struct Node {
  std::string op;
  Matrix value;
  bool needs_gradient = false;
  std::vector<Value> inputs;
  Backward backward;

  Matrix gradient;
  bool has_gradient = false;
  int pending = 0;  // uses of the value whose backward function has not run yet
};

template <class F>
void Slot::put(F f) {
  if (!input_.needs_gradient) return;
  Matrix& gradient = input_.gradient;
  if (!std::exchange(input_.has_gradient, true)) {
    if (gradient.size() != input_.value.size()) gradient = Matrix(input_.value.rows, input_.value.columns);
    for (int i = 0; i < gradient.size(); ++i) gradient[i] = f(i);
  } else {
    for (int i = 0; i < gradient.size(); ++i) gradient[i] += f(i);
  }
}

/// Makes an input, which needs no gradient.
inline Value input(Matrix value) {
  auto node = std::make_shared<Node>();
  node->op = "input";
  node->value = std::move(value);
  return node;
}
/// Makes a parameter, whose gradient backward() computes.
inline Value parameter(Matrix value) {
  Value node = input(std::move(value));
  node->op = "parameter";
  node->needs_gradient = true;
  return node;
}
/// Makes the result of an operation. Keeps inputs and backward function only if a gradient is needed.
inline Value record(std::string op, Matrix value, std::vector<Value> inputs, Backward backward) {
  Value node = input(std::move(value));
  node->op = std::move(op);
  for (const Value& each : inputs) node->needs_gradient = node->needs_gradient || each->needs_gradient;
  if (node->needs_gradient) node->inputs = std::move(inputs), node->backward = std::move(backward);
  return node;
}

/// Computes the gradient of the loss, of one element, with respect to every value behind it that needs one.
/// Calls `visit`, if any, with each node before its backward function runs. The graph can be used only once.
inline void backward(const Value& loss, const std::function<void(const Node&)>& visit = {}) {
  if (loss->value.size() != 1) throw std::invalid_argument("backward: the loss has more than one element");
  std::vector<Value> open = {loss};
  while (!open.empty()) {  // counts how often each value is used, without entering a value twice
    const Value node = std::move(open.back());
    open.pop_back();
    for (const Value& each : node->inputs) {
      if (!each->needs_gradient) continue;
      if (each->pending++ == 0) each->has_gradient = false, open.push_back(each);
    }
  }
  loss->gradient = Matrix(1, 1, 1);
  std::vector<Value> ready = {loss};
  while (!ready.empty()) {
    const Value node = std::move(ready.back());
    ready.pop_back();
    if (visit) visit(*node);
    if (!node->backward) continue;
    std::vector<Slot> slots;
    for (const Value& each : node->inputs) slots.emplace_back(*each);
    node->backward(node->gradient, slots);
    node->backward = nullptr;  // frees what it has saved
    for (const Value& each : std::exchange(node->inputs, {}))
      if (each->needs_gradient && --each->pending == 0) ready.push_back(each);
  }
}

/// Returns f of each element. slope(x, y) is the derivative at x, where f(x) = y.
template <class F, class Slope>
Value elementwise(std::string op, const Value& x, F f, Slope slope) {
  Matrix y = x->value;
  for (double& element : y.data) element = f(element);
  return record(std::move(op), y, {x}, [x, y, slope](const Matrix& dy, std::vector<Slot>& inputs) {
    inputs[0].put([&](int i) { return dy[i] * slope(x->value[i], y[i]); });
  });
}
inline Value exp(const Value& x) {
  return elementwise(
      "exp", x, [](double v) { return std::exp(v); }, [](double, double y) { return y; });
}
inline Value tanh(const Value& x) {
  return elementwise(
      "tanh", x, [](double v) { return std::tanh(v); }, [](double, double y) { return 1 - y * y; });
}
inline Value log(const Value& x) {
  return elementwise(
      "log", x, [](double v) { return std::log(v); }, [](double v, double) { return 1 / v; });
}
/// Returns scale x + shift.
inline Value affine(const Value& x, double scale, double shift) {
  return elementwise(
      "affine", x, [=](double v) { return scale * v + shift; }, [=](double, double) { return scale; });
}
/// Returns the sum of all elements, as one element.
inline Value sum(const Value& x) {
  Matrix y(1, 1);
  for (double element : x->value.data) y[0] += element;
  return record("sum", y, {x}, [](const Matrix& dy, std::vector<Slot>& inputs) {
    inputs[0].put([&](int) { return dy[0]; });
  });
}
/// Returns the elementwise product of two matrices of equal size.
inline Value mul(const Value& a, const Value& b) {
  Matrix y = a->value;
  for (int i = 0; i < y.size(); ++i) y[i] *= b->value[i];
  return record("mul", y, {a, b}, [a, b](const Matrix& dy, std::vector<Slot>& inputs) {
    inputs[0].put([&](int i) { return dy[i] * b->value[i]; });
    inputs[1].put([&](int i) { return dy[i] * a->value[i]; });
  });
}
/// Returns a + b, where b has as many rows as a, or one, which is added to each row of a.
inline Value add(const Value& a, const Value& b) {
  const int size = b->value.size();
  Matrix y = a->value;
  for (int i = 0; i < y.size(); ++i) y[i] += b->value[i % size];
  return record("add", y, {a, b}, [size](const Matrix& dy, std::vector<Slot>& inputs) {
    inputs[0].put([&](int i) { return dy[i]; });
    inputs[1].put([&](int i) {  // b is used once per row of a: the sum of these rows of dy
      double total = 0;
      for (int at = i; at < dy.size(); at += size) total += dy[at];
      return total;
    });
  });
}
/// Returns the matrix multiplication of a, [m, k], and b, [k, n].
inline Value matmul(const Value& a, const Value& b) {
  const int m = a->value.rows, k = a->value.columns, n = b->value.columns;
  Matrix y(m, n);
  for (int i = 0; i < y.size(); ++i)
    for (int j = 0; j < k; ++j) y[i] += a->value.at(i / n, j) * b->value.at(j, i % n);
  return record("matmul", y, {a, b}, [=](const Matrix& dy, std::vector<Slot>& inputs) {
    const auto dot = [](int length, auto term) {
      double total = 0;
      for (int j = 0; j < length; ++j) total += term(j);
      return total;
    };
    inputs[0].put(
        [&](int i) { return dot(n, [&](int j) { return dy.at(i / k, j) * b->value.at(i % k, j); }); });
    inputs[1].put(
        [&](int i) { return dot(m, [&](int j) { return a->value.at(j, i / n) * dy.at(j, i % n); }); });
  });
}

}  // namespace tiny
