// convoy-bench-kernels with a row for an op of one's own, softplus.h, in both directions.
//
//   custom_op_benchmark --benchmark_filter=user
#include "convoy/apps/examples/softplus.h"
#include "convoy/bench/kernels/user_op.h"

using namespace convoy;

int main(int argc, char** argv) {
  const auto softplus = [](std::span<const Variable> x) { return examples::softplus(x[0]); };
  return bench::run_kernel_benchmarks("custom_op_benchmark", argc, argv,
                                      {{.name = "softplus", .inputs = {{128, 32, 32, 64}}, .op = softplus}});
}
