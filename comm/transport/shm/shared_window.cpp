#include "convoy/comm/transport/shm/shared_window.h"

#include <algorithm>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/round_up.h"
#include "convoy/kernels/runtime/memory/host_memory_limit.h"

namespace convoy::dist {
namespace {

constexpr std::size_t kPage = 4096;

}  // namespace

std::shared_ptr<void> SharedWindow::allocate(std::size_t bytes) {
  // Large blocks are whole huge pages.
  const std::size_t page = bytes >= SharedMemory::kHugePage ? SharedMemory::kHugePage : kPage;
  const std::size_t size = round_up(std::max<std::size_t>(bytes, 1), page);
  const std::lock_guard lock(mutex_);
  if (!memory_)
    memory_ = std::make_unique<SharedMemory>(
        SharedMemory::Reserved{host_memory_limit() / 2 / SharedMemory::kHugePage * SharedMemory::kHugePage});
  std::size_t begin = 0;  // of the first gap that is large enough, so that the file stays short
  for (const auto& [at, block_bytes] : blocks_) {
    if (at >= begin + size) break;
    begin = round_up(at + block_bytes, page);
  }
  if (begin > memory_->bytes() || size > memory_->bytes() - begin)
    fail<DeviceError>(
        "shared memory: found {} bytes for collectives after {} bytes, expected at most half of this machine's memory, "
        "or of the limit of its control group, in all ({} bytes)",
        bytes, begin, memory_->bytes());
  memory_->commit(begin, size);
  if (page == SharedMemory::kHugePage) memory_->use_huge_pages(begin, size);
  blocks_.emplace(begin, size);
  return {memory_->data() + begin, [window = shared_from_this(), begin](void*) { window->release(begin); }};
}

void SharedWindow::release(std::size_t begin) noexcept {
  const std::lock_guard lock(mutex_);
  const auto block = blocks_.find(begin);
  memory_->discard(begin, block->second);
  blocks_.erase(block);
}

std::int64_t SharedWindow::offset_of(const ConstView& data) const {
  const std::lock_guard lock(mutex_);
  if (!memory_ || data.data == nullptr) return -1;
  const auto first = reinterpret_cast<std::uintptr_t>(data.data);
  const auto begin = reinterpret_cast<std::uintptr_t>(memory_->data());
  const bool is_inside = first >= begin && first - begin < memory_->bytes();
  return is_inside ? static_cast<std::int64_t>(first - begin) : -1;
}

std::string SharedWindow::address() const {
  const std::lock_guard lock(mutex_);
  return memory_->address();
}

}  // namespace convoy::dist
