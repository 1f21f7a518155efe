// A library that CUDA loads into a program and that writes begin, end and stream of each kernel, also of those in
// graphs (CUPTI, "Activity API"). Compiled and loaded by timeline.py:
//   CUDA_INJECTION64_PATH=$PWD/timeline.so CONVOY_TIMELINE=nodes.csv convoy-bench-step …
#include <cupti.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>

namespace {

constexpr std::size_t kBufferBytes = std::size_t{8} << 20;
std::FILE* table = nullptr;

void CUPTIAPI provide_buffer(std::uint8_t** buffer, std::size_t* bytes, std::size_t* max_records) {
  *buffer = static_cast<std::uint8_t*>(std::aligned_alloc(8, kBufferBytes));
  *bytes = kBufferBytes;
  *max_records = 0;  // as many as fit
}

void CUPTIAPI write_records(CUcontext, std::uint32_t, std::uint8_t* buffer, std::size_t,
                            std::size_t valid_bytes) {
  CUpti_Activity* next = nullptr;
  while (table != nullptr && cuptiActivityGetNextRecord(buffer, valid_bytes, &next) == CUPTI_SUCCESS) {
    if (next->kind != CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL) continue;
    const auto& kernel = *reinterpret_cast<const CUpti_ActivityKernel9*>(next);
    std::fprintf(table, "%llu,%llu,%u,%u,%d,%d,%u,\"%.120s\"\n",
                 static_cast<unsigned long long>(kernel.start), static_cast<unsigned long long>(kernel.end),
                 kernel.streamId, kernel.graphId, kernel.gridX * kernel.gridY * kernel.gridZ,
                 kernel.blockX * kernel.blockY * kernel.blockZ, kernel.registersPerThread, kernel.name);
  }
  std::free(buffer);
}

void close_table() {
  cuptiActivityFlushAll(1);
  std::fclose(table);
  table = nullptr;
}

}  // namespace

/// CUDA calls this function when it starts. The result 1 means that the library stays loaded.
extern "C" int InitializeInjection() {
  const char* const path = std::getenv("CONVOY_TIMELINE");
  if (path != nullptr) table = std::fopen(path, "w");
  if (table == nullptr) return 1;
  std::fputs("begin_ns,end_ns,stream,graph,blocks,threads,registers,kernel\n", table);
  cuptiActivityRegisterCallbacks(provide_buffer, write_records);
  cuptiActivityEnable(CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL);
  std::atexit(close_table);
  return 1;
}
