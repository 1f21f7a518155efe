// Working memory of a kernel.
#pragma once

#include <cstddef>
#include <memory>
#include <new>

namespace convoy {

/// Grows to the largest request and stays, so that a steady state allocates nothing.
class Workspace {
 public:
  void* get(std::size_t bytes) {
    if (bytes > bytes_) {
      block_.reset();  // before the larger one is asked for
      bytes_ = 0;
      block_.reset(static_cast<std::byte*>(::operator new(bytes, kAlignment)));
      bytes_ = bytes;
    }
    return block_.get();
  }

 private:
  static constexpr std::align_val_t kAlignment{64};  // a cache line, and the widest vector
  struct Release {
    void operator()(std::byte* block) const { ::operator delete(block, kAlignment); }
  };
  std::unique_ptr<std::byte, Release> block_;
  std::size_t bytes_ = 0;
};

}  // namespace convoy
