// Device: which processor computes. A plain value; its streams and memory are in device_context.h. All
// functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace convoy {

/// The kind of a device.
enum class DeviceKind : std::uint8_t {
  cpu,   // the processor of the host
  cuda,  // one GPU
  meta,  // has no memory: its tensors have shapes and types but no data, and kernels do nothing
};

/// The GPUs that this process can use.
struct CudaAvailability {
  int count = 0;       // number of usable GPUs
  std::string reason;  // if count is 0: one line that says why and what to do
};
/// Queries the driver for usable GPUs. Does not create a context on any GPU.
CudaAvailability cuda_availability();

/// A processor: the CPU, one of the GPUs, or the meta device, on which a model runs to find the shapes of its
/// results. Creating a value touches no hardware; DeviceContext does.
struct Device {
  DeviceKind kind = DeviceKind::cpu;  // CPU, GPU or meta device
  int index = 0;                      // of the GPU in this process; 0 for other kinds

  /// Returns the CPU.
  static constexpr Device cpu() { return {}; }
  /// Returns the GPU with this index in the process, counted from 0. Whether it exists is not checked.
  static constexpr Device cuda(int index) { return {DeviceKind::cuda, index}; }
  /// Returns the meta device.
  static constexpr Device meta() { return {DeviceKind::meta, 0}; }
  /// Returns the device that `text` names: "auto" (GPU 0 if a GPU can be used, else the CPU), "cpu", "cuda"
  /// (GPU 0) or "cuda:N". Throws UsageError for any other text.
  static Device parse(std::string_view text);
  /// Returns the GPU with index `local_rank` if any GPU can be used, else the CPU. Whether this GPU exists is
  /// not checked.
  static Device best(int local_rank = 0);

  /// Returns "cpu", "cuda:1" or "meta".
  std::string name() const;

  /// Compares kind and index.
  friend constexpr bool operator==(const Device&, const Device&) = default;
};

}  // namespace convoy
