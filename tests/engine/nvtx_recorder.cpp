#include "tests/engine/nvtx_recorder.h"

#include <nvtx3/nvToolsExt.h>

#include <string>
#include <vector>

namespace {

thread_local std::vector<std::string> open_ranges;
thread_local std::string joined;

int push(const char* name) {
  open_ranges.emplace_back(name);
  return static_cast<int>(open_ranges.size()) - 1;
}

int pop() {
  open_ranges.pop_back();
  return static_cast<int>(open_ranges.size());
}

}  // namespace

int InitializeInjectionNvtx2(const void* (*get_export_table)(unsigned)) {
  const auto* const callbacks =
      static_cast<const NvtxExportTableCallbacks*>(get_export_table(NVTX_ETID_CALLBACKS));
  NvtxFunctionTable functions = nullptr;
  unsigned count = 0;
  if (callbacks == nullptr ||
      callbacks->GetModuleFunctionTable(NVTX_CB_MODULE_CORE, &functions, &count) == 0 ||
      count <= NVTX_CBID_CORE_RangePop)
    return 0;
  *functions[NVTX_CBID_CORE_RangePushA] = reinterpret_cast<NvtxFunctionPointer>(push);
  *functions[NVTX_CBID_CORE_RangePop] = reinterpret_cast<NvtxFunctionPointer>(pop);
  return 1;
}

const char* open_nvtx_ranges() {
  joined.clear();
  for (const std::string& name : open_ranges) joined += joined.empty() ? name : "/" + name;
  return joined.c_str();
}
