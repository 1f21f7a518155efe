#include "convoy/kernels/runtime/memory/memory.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstdlib>
#include <string_view>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/option_error.h"
#include "convoy/kernels/base/round_up.h"

namespace convoy {
namespace {

std::atomic<MemoryListener*> active_listener = nullptr;

class HostMemory final : public MemorySource {
 public:
  void* allocate(std::size_t bytes) override {
    const bool is_large = bytes >= kHugePage;
    void* block = nullptr;  // posix_memalign, because std::aligned_alloc requires multiples of the alignment
    if (posix_memalign(&block, is_large ? kHugePage : 64, bytes) != 0) return nullptr;
    // Huge pages cause fewer TLB misses and page faults. An error is ignored: the block then has small pages.
    if (is_large) madvise(block, bytes / kHugePage * kHugePage, MADV_HUGEPAGE);
    return block;
  }
  void release(void* block, std::size_t) noexcept override { std::free(block); }
  std::size_t segment_bytes() const override { return std::size_t{1} << 30; }
  std::size_t free_bytes() const override {
    return static_cast<std::size_t>(sysconf(_SC_AVPHYS_PAGES)) *
           static_cast<std::size_t>(sysconf(_SC_PAGE_SIZE));
  }
  std::string name() const override { return "cpu"; }

 private:
  static constexpr std::size_t kHugePage = std::size_t{2} << 20;
};

}  // namespace

std::unique_ptr<MemorySource> host_memory() { return std::make_unique<HostMemory>(); }

CachingAllocator::CachingAllocator(std::unique_ptr<MemorySource> source, std::size_t limit, Policy policy)
    : source_(std::move(source)), limit_(limit), policy_(policy), arena_(*source_) {}

CachingAllocator::Policy CachingAllocator::policy_from_environment() {
  const char* const cache = std::getenv("CONVOY_MEMORY_CACHE");
  return cache != nullptr && std::string_view(cache) == "off" ? Policy::exact : Policy::caching;
}

CachingAllocator::~CachingAllocator() { trim(); }

std::size_t CachingAllocator::size_class(std::size_t bytes) {
  if (bytes <= 512) return round_up(bytes, 64);
  const std::size_t step = std::bit_floor(bytes - 1) / 8;  // an eighth of the power of two at or below
  return round_up(bytes, step);
}

std::size_t CachingAllocator::taken_for(std::size_t bytes) const {
  if (policy_ == Policy::exact) return bytes;
  return by_arena(bytes) ? Arena::rounded(bytes) : size_class(bytes);
}

MemoryListener* MemoryListener::active() { return active_listener.load(std::memory_order_acquire); }
void MemoryListener::activate(MemoryListener* listener) {
  active_listener.store(listener, std::memory_order_release);
}

void* CachingAllocator::allocate(std::size_t bytes) {
  if (bytes == 0) return nullptr;
  const std::size_t size = taken_for(bytes);
  const std::lock_guard lock(mutex_);
  const auto handed_out = [&](void* block) {
    if (MemoryListener* const listener = MemoryListener::active()) listener->allocated(*this, block, size);
    return block;
  };
  MemoryPool* const pool = pool_of_this_thread();
  if (pool != nullptr) {
    void* const block = by_arena(size) ? pool->ranges_.take(size) : take(pool->free_, size);
    if (block != nullptr) pooled_[block] = pool;
    if (block != nullptr) return handed_out(block);  // already counted as in use
  }
  void* block = from_cache(size);
  if (block == nullptr) block = from_source(size);
  if (block == nullptr) {
    trim_locked();
    block = from_source(size);
  }
  if (block == nullptr)
    throw ErrorWithRemedy<DeviceError>(
        fmt::format("out of memory on {}: asked for {}, {} in use (peak {}{}){}", source_->name(),
                    format_bytes(bytes), format_bytes(stats_.in_use), format_bytes(stats_.peak_in_use),
                    stats_.in_pools > 0
                        ? ", " + format_bytes(stats_.in_pools) + " of it reserved for CUDA graphs"
                        : "",
                    limit_ > 0 ? ", limit " + format_bytes(limit_) : ""),
        source_->advice());
  stats_.in_use += size;
  stats_.peak_in_use = std::max(stats_.peak_in_use, stats_.in_use);
  if (pool != nullptr) {
    pooled_.emplace(block, pool);
    pool->bytes_ += size;
    stats_.in_pools += size;
  }
  return handed_out(block);
}

void* CachingAllocator::take(Blocks& blocks, std::size_t size) {
  const auto found = blocks.find(size);
  if (found == blocks.end() || found->second.empty()) return nullptr;
  void* const block = found->second.back();
  found->second.pop_back();
  return block;
}

void* CachingAllocator::from_cache(std::size_t size) {
  if (policy_ == Policy::exact) return nullptr;  // blocks in free_ await their release to the source
  if (by_arena(size)) return arena_.reuse(size);
  void* const block = take(free_, size);
  if (block != nullptr) stats_.cached -= size;
  return block;
}

void* CachingAllocator::from_source(std::size_t size) {
  const std::size_t held = stats_.in_use + cached();
  if (limit_ > 0 && (held > limit_ || size > limit_ - held)) return nullptr;
  void* const block = by_arena(size) ? arena_.extend(size) : source_->allocate(size);
  if (block == nullptr) return nullptr;
  ++stats_.source_calls;
  if (observer_ && size >= observed_bytes_) observer_(size);
  return block;
}

void CachingAllocator::set_observer(std::size_t min_bytes, std::function<void(std::size_t)> observer) {
  const std::lock_guard lock(mutex_);
  observed_bytes_ = min_bytes;
  observer_ = std::move(observer);
}

void CachingAllocator::release(void* block, std::size_t bytes) noexcept {
  if (block == nullptr) return;
  const std::size_t size = taken_for(bytes);
  const std::lock_guard lock(mutex_);
  if (MemoryListener* const listener = MemoryListener::active()) listener->released(*this, block, size);
  const auto found = pooled_.find(block);
  if (found == pooled_.end()) return give_back(block, size);
  MemoryPool& pool = *found->second;
  pooled_.erase(found);
  if (by_arena(size))
    pool.ranges_.add(block, size, arena_.segments());
  else
    pool.free_[size].push_back(block);
}

void CachingAllocator::give_back(void* block, std::size_t size) noexcept {
  stats_.in_use -= size;
  if (policy_ == Policy::exact && scopes_.empty()) return source_->release(block, size);
  if (by_arena(size)) return arena_.release(block, size);
  stats_.cached += size;
  free_[size].push_back(block);
}

MemoryPool* CachingAllocator::pool_of_this_thread() const {
  if (scopes_.empty()) return nullptr;
  const auto found = scopes_.find(std::this_thread::get_id());
  return found != scopes_.end() ? found->second : nullptr;
}

MemoryPool::~MemoryPool() {
  const std::lock_guard lock(allocator_.mutex_);
  std::erase_if(allocator_.pooled_, [this](const auto& entry) { return entry.second == this; });
  allocator_.stats_.in_pools -= bytes_;
  for (const auto& [size, blocks] : free_)
    for (void* const block : blocks) allocator_.give_back(block, size);
  for (const auto& [begin, size] : ranges_.ranges()) {  // some smaller than a block that the arena serves
    allocator_.stats_.in_use -= size;
    allocator_.arena_.release(begin, size);
  }
}

std::size_t MemoryPool::bytes() const {
  const std::lock_guard lock(allocator_.mutex_);
  return bytes_;
}

MemoryPool::Scope::Scope(MemoryPool& pool) : allocator_(pool.allocator_) {
  const std::lock_guard lock(allocator_.mutex_);
  check(allocator_.scopes_.emplace(thread_, &pool).second,
        "{}: this thread has an open pool scope, expected none", allocator_.source_->name());
}

MemoryPool::Scope::~Scope() {
  const std::lock_guard lock(allocator_.mutex_);
  allocator_.scopes_.erase(thread_);
  if (allocator_.policy_ == CachingAllocator::Policy::exact) allocator_.trim_locked();
}

std::size_t CachingAllocator::available() const {
  const std::lock_guard lock(mutex_);
  return source_->free_bytes() + cached();
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  MemoryStats stats = stats_;
  stats.cached = cached();
  return stats;
}

void CachingAllocator::reset_peak() {
  const std::lock_guard lock(mutex_);
  stats_.peak_in_use = stats_.in_use;
}

void CachingAllocator::trim() noexcept {
  const std::lock_guard lock(mutex_);
  trim_locked();
}

void CachingAllocator::trim_locked() noexcept {
  if (!scopes_.empty()) return;
  for (auto& [size, blocks] : free_)
    for (void* block : blocks) source_->release(block, size);
  free_.clear();
  stats_.cached = 0;
  arena_.trim();
}

std::string format_bytes(std::size_t bytes) {
  constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  if (bytes < 1024) return fmt::format("{} B", bytes);
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  for (; value >= 1024 && unit < 4; ++unit) value /= 1024;
  return fmt::format("{:.2f} {}", value, kUnits[unit]);
}

}  // namespace convoy
