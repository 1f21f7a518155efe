#include "emulator/checking/arena.h"

#include <sys/mman.h>

#include <new>

namespace convoy::emulator {
namespace {
constexpr std::size_t kArenaPage = 4096;
std::size_t in_pages(std::size_t bytes) { return (bytes + kArenaPage - 1) / kArenaPage * kArenaPage; }
}  // namespace

Arena::Arena()
    : begin_(mmap(nullptr, kBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)) {
  if (begin_ == MAP_FAILED) throw std::bad_alloc();
}

void* Arena::allocate(std::size_t bytes) {
  if (bytes > kBytes - used_ - kGap) return nullptr;
  void* const result = static_cast<char*>(begin_) + used_;
  used_ += in_pages(bytes) + kGap;
  mprotect(begin_, used_, is_permitted_ ? PROT_READ | PROT_WRITE : PROT_NONE);
  return result;
}

void Arena::release(void* begin, std::size_t bytes) { madvise(begin, in_pages(bytes), MADV_DONTNEED); }

void Arena::set_access(bool is_permitted) {
  if (is_permitted == is_permitted_) return;
  is_permitted_ = is_permitted;
  mprotect(begin_, used_, is_permitted ? PROT_READ | PROT_WRITE : PROT_NONE);
}

}  // namespace convoy::emulator
