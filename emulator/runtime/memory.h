// The emulated device memory and pinned host memory.
#pragma once

#include <cstddef>
#include <map>
#include <vector>

#include "emulator/counting/access_counter.h"

namespace convoy::emulator {

/// The allocator behind cudaMalloc and cudaHostAlloc. Device memory is host memory that AddressSanitizer
/// guards byte by byte. It is poisoned except while work of its own GPU runs, so host code and kernels of
/// other GPUs cannot access it.
class Memory {
 public:
  static constexpr int kEveryGpu = -1;

  /// Return a new uninitialized block, or null if the host has no memory left.
  void* allocate(int gpu, std::size_t bytes);
  /// `is_managed`: freed by retire(), as the memory of cudaMallocManaged is by cudaFree.
  void* allocate_pinned(std::size_t bytes, bool is_managed = false);
  /// Adds memory of GPU 0 that is not to be freed.
  void add(const void* begin, std::size_t bytes) { blocks_[begin] = {.bytes = bytes, .place = 0}; }
  /// Marks a block from allocate(), or a managed one, as freed. Returns false for any other pointer. The
  /// memory is kept until free_retired(), since queued work may still use it.
  bool retire(void* block);
  /// The same for a block from allocate_pinned().
  bool retire_pinned(void* block);
  /// Frees all retired blocks.
  void free_retired();

  /// Unpoison and poison the memory of one GPU, or of all with kEveryGpu.
  void open(int gpu) { set_access(gpu, true); }
  void close(int gpu) { set_access(gpu, false); }

  // Queries about ranges and blocks that are not retired.
  bool is_on_gpu(const void* begin, std::size_t bytes) const;
  bool is_on(int gpu, const void* begin, std::size_t bytes) const;
  bool is_pinned(const void* begin, std::size_t bytes) const;
  std::size_t used(int gpu) const;
  /// Returns what a kernel on `gpu` may access: its blocks and the pinned ones, in the order of addresses.
  std::vector<AccessCounter::Range> accessible(int gpu) const;
  std::size_t used_pinned() const { return used(kPinned); }

 private:
  static constexpr int kPinned = -2;  // in place of a GPU number
  struct Block {
    std::size_t bytes;
    int place;
    bool is_retired = false, is_managed = false;
  };

  void* allocate(int place, std::size_t bytes, std::size_t alignment);
  Block* find_start(void* block);
  const Block* find(const void* begin, std::size_t bytes) const;
  void set_access(int gpu, bool is_open);

  std::map<const void*, Block> blocks_;
};

}  // namespace convoy::emulator
