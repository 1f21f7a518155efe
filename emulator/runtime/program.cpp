// The functions of emulator/program: what ordinary CUDA programs need in addition to what Convoy uses, and
// the report at the end of a program.
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <sstream>

#include "emulator/checking/own_code.h"
#include "emulator/counting/formatted.h"
#include "emulator/program/host.h"
#include "emulator/program/program_interface.h"
#include "emulator/runtime/environment.h"
#include "emulator/runtime/runtime.h"

#undef cudaFuncSetAttribute
#undef cudaMallocHost
#undef cudaMallocManaged

namespace convoy::emulator {
namespace {

constexpr int kFound = 1;  // the exit status of a program with findings that returns 0

std::string to_json(const Accesses& a) {
  std::ostringstream out;
  const auto global = [&](const char* name, const GlobalAccesses& of) {
    out << "\"" << name << "\": {\"requests\": " << of.requests << ", \"sectors\": " << of.sectors
        << ", \"lanes\": " << of.lanes << ", \"bytes\": " << of.bytes << "}, ";
  };
  const auto shared = [&](const char* name, const SharedAccesses& of) {
    out << "\"" << name << "\": {\"requests\": " << of.requests << ", \"wavefronts\": " << of.wavefronts
        << ", \"minimum\": " << of.minimum << ", \"lanes\": " << of.lanes << "}, ";
  };
  global("global_loads", a.loads);
  global("global_stores", a.stores);
  shared("shared_loads", a.shared_loads);
  shared("shared_stores", a.shared_stores);
  shared("tensor_loads", a.tensor_loads);
  out << "\"atomics\": " << a.atomics;
  return out.str();
}

/// Returns the counts of a launch as an object of JSON, with the lines of its accesses.
std::string to_json(const LaunchCounts& counts) {
  std::ostringstream out;
  const auto size = [&](dim3 value) { return formatted("[{}, {}, {}]", value.x, value.y, value.z); };
  out << "{\"kernel\": " << json_string(counts.name) << ", \"grid\": " << size(counts.grid)
      << ", \"block\": " << size(counts.block) << ", \"shared_bytes\": " << counts.shared_bytes
      << ", \"barriers\": " << counts.barriers << ", \"bytes_read\": " << counts.bytes_read
      << ", \"bytes_written\": " << counts.bytes_written << ", " << to_json(counts.accesses)
      << ", \"sites\": [";
  const char* separator = "";
  for (const SiteCounts& site : counts.sites) {
    out << separator << "{\"place\": " << json_string(place_of(site.site)) << ", " << to_json(site.accesses)
        << "}";
    separator = ", ";
  }
  out << "]}";
  return out.str();
}

/// Adds the error that the program has not looked at, if it has ended as if all were well.
void check_errors(int status) {
  const UncheckedError unchecked = unchecked_error();  // which cudaGetErrorString clears
  if (status != 0 || unchecked.error == cudaSuccess || !Findings::get().all().empty()) return;
  Findings::get().add({"CE006", place_of(unchecked.callers),
                       std::string("a call has failed with ") + cudaGetErrorName(unchecked.error) + " (" +
                           cudaGetErrorString(unchecked.error) +
                           "), and the program has not looked at the error"});
}

void end_program(int status, void*) {
  const UncheckedError unchecked = unchecked_error();
  for (const LaunchCounts& counts : stop_counting())  // runs all queued work
    if (counts.operation.empty()) report_line("{\"launch\": " + to_json(counts) + "}");
  unchecked_error() = unchecked;
  check_errors(status);
  std::fflush(nullptr);
  if (status == 0 && !Findings::get().all().empty()) _exit(kFound);
}

/// A library function of the host, such as memcpy, has accessed memory of the GPU; or the program is at fault
/// otherwise.
void segmentation_fault(int signal, siginfo_t* info, void*) {
  AccessChecker::current()->fault_on_host(info->si_addr);
  ::signal(signal, SIG_DFL);
}

}  // namespace

bool begin_program(const void* device_variables_begin, const void* device_variables_end) {
  static bool has_begun = false;
  if (has_begun) return true;  // called once per source
  has_begun = true;
  Driver& driver = Driver::get();
  Settings settings = driver.settings;
  settings.has_null_stream = true;
  if (variable("CONVOY_EMULATED_GPUS").empty()) settings.gpus = 1;
  if (settings.gpus > 0) settings.driver_version = CUDART_VERSION;
  AccessChecker* const checker = AccessChecker::current();
  if (checker != nullptr) settings.launch_ms = 0;  // so that events measure the same times in every run
  set(settings);
  if (device_variables_begin != device_variables_end) {
    const auto bytes = static_cast<std::size_t>(static_cast<const char*>(device_variables_end) -
                                                static_cast<const char*>(device_variables_begin));
    driver.memory.add(device_variables_begin, bytes);
    if (checker != nullptr)
      checker->add(device_variables_begin, bytes, {.name = "the variables of the device"});
  }
  if (checker != nullptr) {
    struct sigaction action {};
    action.sa_sigaction = segmentation_fault;
    action.sa_flags = SA_SIGINFO;
    sigaction(SIGSEGV, &action, nullptr);
  }
  if (variable("CUEMU_COUNT") == "1") start_counting();
  on_exit(end_program, nullptr);
  return true;
}

void* static_shared(const void* key, std::size_t bytes, std::size_t alignment, const SharedArray& array) {
  const OwnCode scope;
  return BlockRunner::current().static_shared(
      key, bytes, alignment,
      {.name = array.name,
       .element_bytes = array.element_bytes,
       .extents = {array.extents.begin(),
                   array.extents.begin() + static_cast<std::ptrdiff_t>(array.dimensions)}});
}

void* dynamic_shared() { return const_cast<char*>(BlockRunner::shared_memory()); }

void name_dynamic_shared(const SharedArray& array) {
  const OwnCode scope;
  if (BlockRunner::is_running())  // not where a declaration outside of functions is initialized
    BlockRunner::current().name_dynamic_shared({.name = array.name, .element_bytes = array.element_bytes});
}

int block_count(bool predicate, Where where) {
  const OwnCode scope;
  return BlockRunner::current().barrier_count(predicate, where);
}

void set_named_attribute(const char* arguments, cudaFuncAttribute attribute, int value) {
  std::string kernel = arguments;  // "(const void*)f<2>, cudaFuncAttribute…, 8"
  for (const char* cast : {"reinterpret_cast<const void*>(", "(const void*)", "(void*)", "&"})
    if (kernel.starts_with(cast)) kernel = kernel.substr(std::strlen(cast));
  set_kernel_attribute(nullptr, kernel.substr(0, kernel.find_first_of(",<) ")), attribute, value);
}

void name_array(const void* begin, const char* argument) {
  AccessChecker* const checker = AccessChecker::current();
  if (checker == nullptr) return;
  const std::string text = argument;
  const std::size_t amper = text.find_last_of("&) ");
  checker->name(begin, text.substr(amper == std::string::npos ? 0 : amper + 1));
}

}  // namespace convoy::emulator

using namespace convoy::emulator;  // NOLINT: the names below are those of the C API

cudaError_t cudaPeekAtLastError() { return last_error(); }

cudaError_t cudaDeviceSynchronize() {
  return on_gpu([](Driver& driver, int) {
    driver.run_all_streams();
    return driver.report().empty() ? cudaSuccess : cudaErrorLaunchFailure;
  });
}

cudaError_t cudaDeviceReset() { return cudaDeviceSynchronize(); }

cudaError_t cudaGetDevice(int* device) {
  return on_gpu([&](Driver&, int gpu) {
    *device = gpu;
    return cudaSuccess;
  });
}

cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaStreamCreate(cudaStream_t* stream) { return cudaStreamCreateWithPriority(stream, 0, 0); }

cudaError_t cudaStreamCreateWithFlags(cudaStream_t* stream, unsigned flags) {
  return cudaStreamCreateWithPriority(stream, flags, 0);
}

cudaError_t cudaStreamQuery(cudaStream_t stream) {
  return on_stream(stream, [](Driver& driver, EmulatedStream& held) {
    if (held.capture != nullptr) return unsupported(*held.capture);
    if (!held.queue.empty()) return cudaErrorNotReady;
    driver.run_all_of(held);
    return cudaSuccess;
  });
}

cudaError_t cudaEventCreate(cudaEvent_t* event) { return cudaEventCreateWithFlags(event, cudaEventDefault); }

cudaError_t cudaMemcpy(void* to, const void* from, std::size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t status = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return status != cudaSuccess ? status : cudaStreamSynchronize(nullptr);
}

cudaError_t cudaMemset(void* to, int value, std::size_t bytes) {
  return cudaMemsetAsync(to, value, bytes, nullptr);
}

cudaError_t cudaMallocManaged(void** block, std::size_t bytes, unsigned) {
  return allocate_on_host(block, bytes, /*is_managed=*/true);
}

cudaError_t cudaMallocHost(void** block, std::size_t bytes) {
  return cudaHostAlloc(block, bytes, cudaHostAllocDefault);
}
