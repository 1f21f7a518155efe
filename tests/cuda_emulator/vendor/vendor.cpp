#include "tests/cuda_emulator/vendor/vendor.h"

#include <cstring>
#include <utility>

#include "emulator/runtime/device_clock.h"
#include "emulator/runtime/environment.h"
#include "tests/cuda_emulator/vendor/vendor_state.h"

namespace convoy::emulator {

VendorState& vendor_state() {
  // Never destroyed: a graph that outlives main() may still contain work that counts itself.
  static VendorState& state = *[] {
    auto* const made = new VendorState;
    if (const int execution = number("CONVOY_EMULATED_CUDNN_FAILURE", -1); execution >= 0)
      made->settings.cudnn.failing_executions = {{execution, CUDNN_STATUS_EXECUTION_FAILED}};
    int& compilations = made->settings.cudnn.max_compiled_plans;
    compilations = number("CONVOY_EMULATED_CUDNN_COMPILATIONS", compilations);
    return made;
  }();
  return state;
}

VendorSettings vendor_settings() {
  const std::lock_guard lock(Driver::get().lock());
  return vendor_state().settings;
}

void set(const VendorSettings& settings) {
  const std::lock_guard lock(Driver::get().lock());
  Driver::get().run_all();
  vendor_state().settings = settings;
}

VendorCounts vendor_counts() {
  const std::lock_guard lock(Driver::get().lock());
  Driver::get().run_all();
  return vendor_state().counts;
}

void reset_vendor_counts() {
  const std::lock_guard lock(Driver::get().lock());
  Driver::get().run_all();
  vendor_state().counts = {};
}

void compute(Driver& driver, EmulatedStream& stream, double ms, LibraryCall call) {
  const auto run = [ms, work = std::move(call.work), output = call.output] {
    const double begin = device_ms();
    if (vendor_state().settings.compute)
      work();
    else
      std::memset(const_cast<void*>(output.begin), 0, output.bytes);
    if (ms >= 0) simulate_device_ms(device_ms() - begin, ms);
  };
  driver.compute(stream, run, std::move(call.moved));
}

bool Span::overlaps(const Span& other) const {
  const auto first = reinterpret_cast<std::uintptr_t>(begin);
  const auto second = reinterpret_cast<std::uintptr_t>(other.begin);
  return first < second + other.bytes && second < first + bytes;
}

bool Span::is_aligned(std::size_t alignment) const {
  return reinterpret_cast<std::uintptr_t>(begin) % alignment == 0;
}

}  // namespace convoy::emulator
