// A profiler of NVTX ranges for tests: a library that NVTX loads because NVTX_INJECTION64_PATH names it.
#pragma once

extern "C" {

/// Called by NVTX when the first range of the program begins.
int InitializeInjectionNvtx2(const void* (*get_export_table)(unsigned));

/// Returns the names of the calling thread's open ranges, such as "layer1/conv2d". Valid until the thread's
/// next call.
const char* open_nvtx_ranges();
}
