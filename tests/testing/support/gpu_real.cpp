#include "tests/testing/support/gpu.h"

namespace convoy::testing {

bool gpus_are_emulated() { return false; }
int gpu_orders() { return 1; }
void set_gpu_order(int) {}
void set_gpu_multiprocessors(int) {}
std::string take_gpu_report() { return ""; }

}  // namespace convoy::testing
