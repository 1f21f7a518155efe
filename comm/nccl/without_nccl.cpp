// Definitions for builds without NCCL: nothing is supported, and make_nccl_communicator() throws.
#include "convoy/comm/core/library_versions.h"
#include "convoy/comm/nccl/nccl_communicator.h"
#include "convoy/kernels/base/check.h"

namespace convoy::dist {

std::string nccl_version_text() { return ""; }

bool nccl_supported() { return false; }

std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator>, const DeviceContext&,
                                                     const CommOptions&) {
  fail<UsageError>(
      "NCCL communicator: this build has no NCCL; install libnccl-dev and configure again with the cuda preset");
}

void let_nccl_share_gpus(int) {}

}  // namespace convoy::dist
