// convoy-bench-kernels as a function, for a program of one's own that measures ops of its own:
//
//   int main(int argc, char** argv) {
//     return convoy::bench::run_kernel_benchmarks("my_benchmark", argc, argv,
//                                                 {{.name = "softsign", .inputs = {{128, 32, 32, 64}}, .op = …}});
//   }
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "convoy/engine/autograd/variable.h"

namespace convoy::bench {

/// An op to measure. Its arguments are random, of the type of --precision, and all get a gradient.
struct UserOp {
  std::string name;           // letters, digits and underscores
  std::vector<Shape> inputs;  // shapes of the arguments
  /// Computes the result from arguments of these shapes.
  std::function<Variable(std::span<const Variable> x)> op;
  double low = -1;  // minimum of the arguments
  double high = 1;  // maximum of the arguments
};

/// Runs convoy-bench-kernels with these command line arguments, under the name `program`, and returns its
/// exit code. Has the rows "user/NAME/forward" and "user/NAME/backward" for each of `ops`, before those of
/// the project. The bandwidth is computed from the cost that the op gives to record(). An op without a cost
/// is taken to read its arguments and write its result once, and, in the backward pass, to read the gradient
/// and the arguments and write their gradients. Not thread-safe; blocks until all rows are measured.
int run_kernel_benchmarks(const std::string& program, int argc, char** argv,
                          const std::vector<UserOp>& ops = {});

}  // namespace convoy::bench
