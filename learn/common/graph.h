// The graph of exercise grad-3: nodes that count how often their backward function runs.
#pragma once

#include <utility>
#include <vector>

/// A value that was computed from others. `gradient` and `pending` begin with 0, for the learner to use.
class Node {
 public:
  double gradient = 0;  ///< the result: the derivative of the loss with respect to this value
  int pending = 0;

  Node() = default;
  Node(std::vector<Node*> inputs, std::vector<double> slopes)
      : inputs_(std::move(inputs)), slopes_(std::move(slopes)) {}

  /// Returns the nodes that this one was computed from; one that was used twice is there twice.
  const std::vector<Node*>& inputs() const { return inputs_; }

  /// Runs the backward function: returns, for each input, the contribution of dy, the gradient of this value.
  std::vector<double> run(double dy) {
    ++runs;
    std::vector<double> parts;
    for (double slope : slopes_) parts.push_back(dy * slope);
    return parts;
  }
  inline static long runs = 0;  ///< calls of run() of all nodes

 private:
  std::vector<Node*> inputs_;
  std::vector<double> slopes_;
};
