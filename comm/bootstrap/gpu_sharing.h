// Detection of ranks that share a GPU, which is nearly always a mistake.
#pragma once

#include <string>

#include "convoy/comm/bootstrap/rendezvous.h"

namespace convoy::dist {

/// Throws UsageError on all ranks if two ranks of a host use the same GPU, unless `allow_shared_gpu` is true.
/// Collective call. `gpu` identifies this rank's GPU on its host (such as a UUID or PCI address); it is empty
/// on the CPU.
void check_gpu_sharing(Rendezvous& rendezvous, const std::string& gpu, bool allow_shared_gpu);

}  // namespace convoy::dist
