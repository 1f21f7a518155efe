// A ModelCase on a device, run as training runs it: forward records the graph, backward starts from a
// gradient of ones. Results of other ops that it takes are results here too: their gradients are born in
// fresh memory of the caching allocator, where those of parameters have a place of their own.
#pragma once

#include <vector>

#include "kernels/runtime/device.h"
#include "tests/op_cases/model_case.h"

namespace convoy::bench {

class OpRun {
 public:
  /// Draws the arguments, and runs both directions once.
  OpRun(const testing::ModelCase& c, const Device& device);

  /// The results of so many calls, each with its graph.
  std::vector<Variable> forward(int calls) const { return forward(arguments(calls)); }

  // Wall seconds of so many calls one after another, from an idle device until it is idle again. Before a
  // backward its forwards have run, untimed; their results stay in memory until it is their turn.
  double forward_seconds(int calls) const;
  double backward_seconds(int calls) const;

 private:
  using Arguments = std::vector<Variable>;
  /// For each of so many calls its own: each records a graph.
  std::vector<Arguments> arguments(int calls) const;
  std::vector<Variable> forward(const std::vector<Arguments>& arguments) const;

  testing::ModelCase case_;
  Device device_;
  std::vector<Tensor> values_;        // of the arguments
  std::vector<Variable> parameters_;  // undefined where an argument is none
  Variable source_;                   // what other ops' results are recorded to come from
  Tensor ones_;
};

}  // namespace convoy::bench
