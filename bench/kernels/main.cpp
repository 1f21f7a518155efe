#include "convoy/bench/kernels/user_op.h"

int main(int argc, char** argv) {
  return convoy::bench::run_kernel_benchmarks("convoy-bench-kernels", argc, argv);
}
