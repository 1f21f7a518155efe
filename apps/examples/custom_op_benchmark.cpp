// convoy-bench-kernels with a row for an op of one's own, softsign.h, in both directions.
//
//   custom_op_benchmark --benchmark_filter=user
#include "convoy/apps/examples/softsign.h"
#include "convoy/bench/kernels/user_op.h"

using namespace convoy;

int main(int argc, char** argv) {
  const auto softsign = [](std::span<const Variable> x) { return examples::softsign(x[0]); };
  return bench::run_kernel_benchmarks("custom_op_benchmark", argc, argv,
                                      {{.name = "softsign", .inputs = {{128, 32, 32, 64}}, .op = softsign}});
}
