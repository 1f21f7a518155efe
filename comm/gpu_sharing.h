// Which rank computes where: two on one GPU are nearly always a mistake.
#pragma once

#include <string>

#include "comm/rendezvous.h"

namespace convoy {

/// Every rank calls it, with what tells its GPU from others of its host ("GPU-1f3a…", a PCI address), or ""
/// on the CPU. UsageError, on all ranks alike, where two ranks of a host say the same.
void check_gpu_sharing(Rendezvous& rendezvous, const std::string& gpu, bool allow_shared_gpu);

}  // namespace convoy
