#include "convoy/comm/bootstrap/gpu_sharing.h"

#include "convoy/kernels/base/check.h"

namespace convoy::dist {

void check_gpu_sharing(Rendezvous& rendezvous, const std::string& gpu, bool allow_shared_gpu) {
  const std::vector<std::string> gpus = rendezvous.all_gather(gpu);
  if (allow_shared_gpu) return;
  for (std::size_t rank = 0; rank < gpus.size(); ++rank) {
    const RankInfo& info = rendezvous.all()[rank];
    for (std::size_t other = 0; other < rank; ++other)
      check(
          gpus[rank].empty() || gpus[rank] != gpus[other] || info.node != rendezvous.all()[other].node,
          "ranks {} and {} of host {} would share one GPU ({}); start at most one rank per GPU on this host "
          "(found {} ranks), or set allow_shared_gpu",
          other, rank, info.host, gpus[rank], info.local_world_size);
  }
}

}  // namespace convoy::dist
