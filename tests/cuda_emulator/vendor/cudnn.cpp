// The functions of include/cudnn.h.
#include <cudnn.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "emulator/runtime/runtime.h"
#include "tests/cuda_emulator/vendor/cudnn_plan.h"

namespace convoy::emulator {
namespace {

thread_local std::string t_last_error;

/// Checks that the array is aligned and in the memory of the GPU. Returns its range.
Span checked(const Driver& driver, int gpu, void* array, std::size_t bytes, std::int64_t alignment,
             const std::string& what) {
  if (array == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, what + " has no pointer");
  const Span span{.begin = array, .bytes = bytes};
  if (!span.is_aligned(static_cast<std::size_t>(alignment)))
    refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
           what + " does not have the alignment of its descriptor");
  if (!driver.memory.is_on(gpu, array, bytes))
    refuse(CUDNN_STATUS_BAD_PARAM_OUT_OF_BOUND, what + " is not within one block of the GPU's memory");
  return span;
}

void check_arrays(const Driver& driver, const Plan& plan, const VariantPack& pack) {
  std::map<std::int64_t, Tensor> tensors;  // that are stored in memory
  std::vector<Operation> operations = {plan.fused.convolution};
  for (const PointwiseOperation& op : plan.fused.epilogue) operations.emplace_back(op);
  for (const Operation& op : operations)
    for (const Tensor& tensor : tensors_of(op))
      if (!tensor.is_virtual) tensors.emplace(tensor.id, tensor);
  for (const auto& [id, array] : pack.arrays)
    require(tensors.contains(id), "no stored tensor has the id " + std::to_string(id));

  constexpr std::int64_t kWorkspaceAlignment = 16;
  const std::int64_t output_id = plan.fused.output().id;
  std::vector<Span> inputs;
  Span output, workspace;
  for (const auto& [id, tensor] : tensors) {
    const std::string what = "tensor " + std::to_string(id);
    const auto array = pack.arrays.find(id);
    require(array != pack.arrays.end(), what + " has no pointer");
    const Span span = checked(driver, plan.gpu, array->second, tensor.bytes(), tensor.alignment, what);
    if (id == output_id)
      output = span;
    else
      inputs.push_back(span);
  }
  if (plan.workspace_bytes > 0)
    workspace =
        checked(driver, plan.gpu, pack.workspace, plan.workspace_bytes, kWorkspaceAlignment, "the workspace");
  require(!output.overlaps(workspace), "the output overlaps the workspace");
  for (const Span& input : inputs)
    require(!input.overlaps(output) && !input.overlaps(workspace),
            "an input overlaps the output or the workspace");
}

/// Returns the simulated time of an execution in ms, or a negative value for the actual time.
double execution_ms(const CudnnSettings& settings, const Plan& plan) {
  const auto tile = plan.choice.knobs.find(CUDNN_KNOB_TYPE_TILE_SIZE);
  const double factor = tile != plan.choice.knobs.end()
                            ? 1 + static_cast<double>(std::abs(tile->second - settings.best_tile)) / 20
                            : 1;
  if (!plan.fused.epilogue.empty()) return settings.fused_ms * factor;
  const auto ms = settings.execution_ms.find(plan.choice.engine);
  return ms != settings.execution_ms.end() ? ms->second * factor : -1;
}

/// Returns what an execution moves and computes.
LaunchCounts moved_by(const FusedConvolution& fused) {
  const ConvolutionOperation& convolution = fused.convolution;
  const auto elements = [](const std::vector<std::int64_t>& dims) {
    std::uint64_t product = 1;
    for (const std::int64_t dim : dims) product *= static_cast<std::uint64_t>(dim);
    return product;
  };
  const Tensor& output = fused.output();
  // Each element of y is a sum over a filter.
  const std::uint64_t terms =
      elements(convolution.w.dims) / static_cast<std::uint64_t>(convolution.w.dims[0]);
  LaunchCounts moved{.operation = convolution.direction == Direction::forward ? "conv2d forward"
                                  : convolution.direction == Direction::data  ? "conv2d backward data"
                                                                              : "conv2d backward filter",
                     .bytes_written = output.bytes(),
                     .flops = 2 * elements(convolution.y.dims) * terms,
                     .element_bytes = size_of(convolution.x.element())};
  for (const Tensor* const tensor : {&convolution.x, &convolution.w, &convolution.y})
    if (!tensor->is_virtual && (tensor->id != output.id || convolution.beta != 0))
      moved.bytes_read += tensor->bytes();
  for (const PointwiseOperation& operation : fused.epilogue)
    if (operation.b) moved.bytes_read += operation.b->bytes();
  return moved;
}

void execute(Driver& driver, EmulatedStream& stream, int current_gpu, const cudnnContext& handle,
             const Descriptor& plan_descriptor, const Descriptor& pack_descriptor) {
  require(plan_descriptor.type == CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, "not an execution plan");
  require(pack_descriptor.type == CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, "not a variant pack");
  if (!plan_descriptor.is_finalized || !pack_descriptor.is_finalized)
    refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "the plan or the variant pack is not finalized");
  const Plan& plan = plan_descriptor.as<Plan>();
  const VariantPack& pack = pack_descriptor.as<VariantPack>();
  require(handle.gpu == current_gpu, "the handle does not belong to the current GPU");
  require(handle.gpu == plan.gpu, "the plan is for another GPU");
  check_arrays(driver, plan, pack);
  const CudnnSettings& settings = vendor_state().settings.cudnn;
  const std::int64_t execution = vendor_state().executions++;
  for (const auto& [failures, number] : {std::pair(&settings.failing, plan.choice.engine),
                                         std::pair(&settings.failing_executions, execution)}) {
    const auto failure = failures->find(number);
    if (failure == failures->end()) continue;
    // The real library may have made a call that a capture does not permit.
    if (stream.capture != nullptr) stream.capture->invalidate();
    refuse(failure->second, "engine " + std::to_string(plan.choice.engine) + " failed");
  }
  const auto work = [plan, pack] {
    void* const workspace = plan.workspace_bytes > 0 ? pack.workspace : nullptr;
    if (workspace != nullptr) std::memset(workspace, kUninitialized, plan.workspace_bytes);
    run(plan.fused, plan.choice, pack.arrays, workspace);
  };
  const Tensor& output = plan.fused.output();
  compute(driver, stream, execution_ms(settings, plan),
          {.work = work,
           .output = {.begin = pack.arrays.at(output.id), .bytes = output.bytes()},
           .moved = moved_by(plan.fused)});
}

/// Calls `f` and returns its status. Stores the reason of a CudnnRefusal.
cudnnStatus_t status_of(const std::function<void()>& f) {
  try {
    f();
    return CUDNN_STATUS_SUCCESS;
  } catch (const CudnnRefusal& refusal) {
    t_last_error = refusal.why;
    return refusal.status;
  }
}

cudnnStatus_t locked(const std::function<void()>& f) {
  const std::lock_guard lock(Driver::get().lock());
  return status_of(f);
}

/// Returns `of_error` if the CUDA runtime has failed, otherwise `status`.
cudnnStatus_t status_of(cudaError_t error, cudnnStatus_t status, cudnnStatus_t of_error) {
  if (error == cudaSuccess) return status;
  t_last_error = cudaGetErrorString(error);
  return of_error;
}

}  // namespace
}  // namespace convoy::emulator

using namespace convoy::emulator;  // NOLINT: the names below are those of the C API

std::size_t cudnnGetVersion() { return vendor_settings().cudnn.version; }

const char* cudnnGetErrorString(cudnnStatus_t status) {
#define CONVOY_NAME(name, value) \
  case name: return #name;
  switch (status) { CONVOY_CUDNN_STATUSES(CONVOY_NAME) }
#undef CONVOY_NAME
  return "CUDNN_STATUS_UNKNOWN";
}

void cudnnGetLastErrorString(char* message, std::size_t max_size) {
  if (message == nullptr || max_size == 0) return;
  const std::size_t length = std::min(t_last_error.size(), max_size - 1);
  std::memcpy(message, t_last_error.data(), length);
  message[length] = '\0';
}

cudnnStatus_t cudnnCreate(cudnnHandle_t* handle) {
  if (handle == nullptr) return locked([] { require(false, "the pointer for the handle is null"); });
  const cudaError_t error = on_gpu([&](Driver& driver, int gpu) {
    if (driver.forbids_allocation())
      return cudaErrorStreamCaptureUnsupported;  // the real library allocates memory
    if (cudnn_handles().size() >= vendor_state().settings.cudnn.max_handles) return cudaErrorMemoryAllocation;
    *handle = cudnn_handles().add({.gpu = gpu});
    return cudaSuccess;
  });
  return status_of(error, CUDNN_STATUS_SUCCESS, CUDNN_STATUS_NOT_INITIALIZED);
}

cudnnStatus_t cudnnDestroy(cudnnHandle_t handle) {
  return locked([&] { require(cudnn_handles().remove(handle), "not a handle, or it was destroyed"); });
}

cudnnStatus_t cudnnSetStream(cudnnHandle_t handle, cudaStream_t stream) {
  return locked([&] {
    const cudnnContext& context = handle_of(handle);
    const EmulatedStream* const held = Driver::get().find(stream);
    require(held != nullptr, "not a stream; the emulator has no stream 0");
    if (held->gpu != context.gpu)
      refuse(CUDNN_STATUS_BAD_PARAM_STREAM_MISMATCH, "the stream belongs to another GPU than the handle");
    handle->stream = stream;
  });
}

cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type,
                                           cudnnBackendDescriptor_t* descriptor) {
  return locked([&] {
    if (descriptor == nullptr)
      refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the pointer for the descriptor is null");
    *descriptor = descriptors().create(type);
  });
}

cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t descriptor) {
  return locked([&] { descriptors().destroy(descriptor); });
}

cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t descriptor) {
  // Other threads may call cuDNN while a plan is compiled.
  Compilation compilation;
  const cudnnStatus_t status = locked([&] { compilation = begin_finalize(*descriptors().find(descriptor)); });
  if (status != CUDNN_STATUS_SUCCESS) return status;
  std::this_thread::sleep_for(compilation.duration);
  return locked([&] {
    end(compilation);
    finalize(*descriptors().find(descriptor));
  });
}

cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t count,
                                       const void* elements) {
  return locked([&] { set_attribute(*descriptors().find(descriptor), name, type, count, elements); });
}

cudnnStatus_t cudnnBackendGetAttribute(cudnnBackendDescriptor_t descriptor, cudnnBackendAttributeName_t name,
                                       cudnnBackendAttributeType_t type, std::int64_t requested,
                                       std::int64_t* count, void* elements) {
  return locked(
      [&] { get_attribute(*descriptors().find(descriptor), name, type, requested, count, elements); });
}

cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t plan,
                                  cudnnBackendDescriptor_t variant_pack) {
  cudnnContext context;
  const cudnnStatus_t known = locked([&] {
    context = handle_of(handle);
    require(context.stream != nullptr, "the handle has no stream; the emulator has no stream 0");
  });
  if (known != CUDNN_STATUS_SUCCESS) return known;
  cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
  int current = 0;
  cudaError_t error = on_gpu([&](Driver&, int gpu) {
    current = gpu;
    return cudaSuccess;
  });
  if (error == cudaSuccess)
    error = on_stream(context.stream, [&](Driver& driver, EmulatedStream& stream) {
      status = status_of([&] {
        execute(driver, stream, current, context, *descriptors().find(plan),
                *descriptors().find(variant_pack));
      });
      return cudaSuccess;
    });
  return status_of(error, status, CUDNN_STATUS_EXECUTION_FAILED_CUDART);
}
