// What cudaMalloc and cudaHostAlloc hand out.
#pragma once

#include <cstddef>
#include <map>

namespace convoy::emulator {

/// Device memory is host memory that AddressSanitizer guards, byte for byte, and that only its own GPU's work
/// may touch: it is closed while the host runs, and to the kernels of other GPUs.
class Memory {
 public:
  static constexpr int kEveryGpu = -1;

  void* allocate(int gpu, std::size_t bytes);
  void* allocate_pinned(std::size_t bytes);
  /// Ends a block that allocate() gave; false for any other. Its bytes stay until free_retired(), since
  /// queued work may still want them.
  bool retire(void* block);
  bool retire_pinned(void* block);
  void free_retired();

  void open(int gpu) { set_access(gpu, true); }
  void close(int gpu) { set_access(gpu, false); }

  // Of the blocks not retired.
  bool is_on_gpu(const void* begin, std::size_t bytes) const;
  bool is_on(int gpu, const void* begin, std::size_t bytes) const;
  bool is_pinned(const void* begin, std::size_t bytes) const;
  std::size_t used(int gpu) const;
  std::size_t used_pinned() const { return used(kPinned); }

 private:
  static constexpr int kPinned = -2;  // in the place of a GPU
  struct Block {
    std::size_t bytes;
    int place;
    bool is_retired = false;
  };

  void* allocate(int place, std::size_t bytes, std::size_t alignment);
  Block* find_start(void* block);
  const Block* find(const void* begin, std::size_t bytes) const;
  void set_access(int gpu, bool is_open);

  std::map<const void*, Block> blocks_;
};

}  // namespace convoy::emulator
