#include "convoy/comm/cluster/control/host_memory.h"

#include <algorithm>
#include <utility>

#include "convoy/kernels/base/check.h"

namespace convoy::dist {

// The kernel provides the memory filled with zeros, which is a valid state of every member.
static_assert(std::atomic<std::int64_t>::is_always_lock_free && std::atomic<Phase>::is_always_lock_free);

HostMemory::HostMemory(int rank, std::vector<int> host_ranks, const JobExchange& exchange)
    : ranks_(std::move(host_ranks)) {
  index_ = static_cast<int>(std::find(ranks_.begin(), ranks_.end(), rank) - ranks_.begin());
  std::string failure;
  try {
    if (index_ == 0)
      memory_ = std::make_unique<SharedMemory>(sizeof(HostSlot) + ranks_.size() * sizeof(RankSlot));
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const std::vector<std::string> addresses =
      exchange(memory_ ? memory_->address() : "");  // also when this rank failed: the others wait for it
  const std::string& address = addresses[static_cast<std::size_t>(ranks_.front())];
  try {
    if (address.empty()) fail<PeerError>("rank {} has no shared memory", ranks_.front());
    if (index_ != 0) memory_ = std::make_unique<SharedMemory>(address);
    memory_->hold(index_);
  } catch (const std::exception& error) {
    if (failure.empty()) failure = error.what();
  }
  const std::vector<std::string> failures = exchange(failure);
  for (std::size_t other = 0; other < failures.size(); ++other)
    if (!failures[other].empty()) fail<PeerError>("control plane of rank {}: {}", other, failures[other]);
}

HostSlot& HostMemory::host() const { return *reinterpret_cast<HostSlot*>(memory_->data()); }

RankSlot& HostMemory::slot(int index) const {
  return reinterpret_cast<RankSlot*>(memory_->data() + sizeof(HostSlot))[index];
}

void HostMemory::wake() const noexcept {
  host().changes.fetch_add(1);
  futex_wake_all(host().changes);
}

}  // namespace convoy::dist
