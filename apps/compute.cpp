#include "apps/compute.h"

#include <variant>

#include "kernels/runtime/check.h"

namespace convoy {
namespace {

/// A stream of such a build may be one of two kinds.
constexpr bool kBuiltForGpus = std::variant_size_v<Stream> != 1;

}  // namespace

void add_compute_flags(CommandLine& line, ComputeOptions& options) {
  line.add("device", &options.device, "Where to compute: auto, cpu, cuda, cuda:N", {.value = "DEVICE"});
  line.add("threads", &options.threads, "Cores that the CPU computes on; 0: all that this process may use",
           {.value = "N", .least = 0, .most = 1024});
}

void add_data_on_device_flag(CommandLine& line, ComputeOptions& options) {
  line.add("data-on-device", &options.data_on_device,
           "Keep the images in the GPU's memory, as bytes, and let it augment them",
           {.default_is = "where they take at most a quarter of what the GPU has free"});
}

bool keeps_on_device(const ComputeOptions& options, const Device& device, std::size_t bytes) {
  const bool is_gpu = device.kind() == DeviceKind::cuda;
  check(is_gpu || !options.data_on_device.value_or(false),
        "--data-on-device: found --device {}, expected a GPU", device.name());
  return options.data_on_device.value_or(is_gpu && bytes <= device.memory().available() / 4);
}

Device open_device(ComputeOptions& options) {
  if (options.threads == 0) options.threads = available_cores();
  Device device = Device::parse(options.device, {.threads = static_cast<int>(options.threads)});
  if (kBuiltForGpus && options.device == "auto" && device.kind() == DeviceKind::cpu)
    options.no_gpu = cuda_availability().reason;
  options.device = device.name();
  return device;
}

DType parse_precision(std::string_view text) {
  if (text == "fp32") return DType::f32;
  if (text == "fp64") return DType::f64;
  fail<UsageError>("--precision: found '{}', expected fp32 or fp64", text);
}

}  // namespace convoy
