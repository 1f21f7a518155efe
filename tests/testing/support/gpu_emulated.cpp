#include "emulator/runtime/emulator.h"
#include "tests/testing/support/gpu.h"

namespace convoy::testing {

bool gpus_are_emulated() { return true; }

int gpu_orders() { return CONVOY_GPU_ORDERS; }

void set_gpu_order(int order) {
  using emulator::Order;
  static const emulator::Settings from_environment = emulator::settings();
  emulator::Settings settings = from_environment;
  if (order > 0) {
    settings.order = order == 1 ? Order::descending : Order::random;
    settings.streams = emulator::Streams::random;
    settings.seed = static_cast<std::uint64_t>(order);
  }
  emulator::set(settings);
}

void set_gpu_multiprocessors(int count) {
  emulator::Settings settings = emulator::settings();
  settings.multiprocessors = count;
  emulator::set(settings);
}

std::string take_gpu_report() {
  const std::string report = emulator::report();
  emulator::reset();
  return report;
}

}  // namespace convoy::testing
