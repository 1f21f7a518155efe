// The instructions of include/ptx.h.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "emulator/checking/access_checker.h"
#include "emulator/checking/own_code.h"
#include "emulator/runtime/block.h"

namespace convoy::emulator {
namespace {

constexpr std::size_t kBytes = 16;  // of a copy, and of a row of a matrix

std::atomic<bool> tensor_cores_compute_ = true;

/// Observes an access of the instruction that ends at `next`.
void count(const void* address, bool is_store, const void* next) {
  observe(address, kBytes, is_store ? AccessKind::store : AccessKind::load,
          static_cast<const char*>(next) - 1);
}

void check_aligned(const void* address, const char* what, Where where) {
  if (reinterpret_cast<std::uintptr_t>(address) % kBytes != 0)
    BlockRunner::current().fault(std::string(what) + " is not a multiple of 16", where);
}

}  // namespace

void set_tensor_cores_compute(bool computes) { tensor_cores_compute_ = computes; }
bool tensor_cores_compute() { return tensor_cores_compute_.load(std::memory_order_relaxed); }

void copy_async(void* shared, const void* global, bool is_inside, Where where) {
  const OwnCode scope;
  check_aligned(shared, "the destination of an asynchronous copy", where);
  check_aligned(global, "the source of an asynchronous copy", where);
  if (is_inside) count(global, /*is_store=*/false, __builtin_return_address(0));
  count(shared, /*is_store=*/true, __builtin_return_address(0));
  BlockRunner::current().copies().open.push_back({.to = shared, .from = is_inside ? global : nullptr});
}

void commit_copies() {
  const OwnCode scope;
  ThreadCopies& copies = BlockRunner::current().copies();
  copies.groups.push_back(std::exchange(copies.open, {}));
}

void wait_for_copies(unsigned pending) {
  const OwnCode scope;
  ThreadCopies& copies = BlockRunner::current().copies();
  for (; copies.groups.size() > pending; copies.groups.pop_front())
    for (const ThreadCopies::Copy& copy : copies.groups.front()) {
      if (copy.from != nullptr)
        std::memcpy(copy.to, copy.from, kBytes);
      else
        std::memset(copy.to, 0, kBytes);
      BlockRunner::current().warpgroups().landed(copy.to);
    }
}

void load_matrices(const void* row, std::uint32_t (&to)[4], Where where) {
  const OwnCode scope;
  check_aligned(row, "the address of a matrix's row", where);
  count(row, /*is_store=*/false, __builtin_return_address(0));
  if (!tensor_cores_compute()) {
    std::fill_n(to, 4, 0u);
    return;
  }
  using Row = std::array<std::uint16_t, kBytes / 2>;
  Row own;
  std::memcpy(&own, row, kBytes);
  const std::array<Row, 32> rows = BlockRunner::current().of_all_lanes(own, where);
  const unsigned g = BlockRunner::current().lane() / 4, t = BlockRunner::current().lane() % 4;
  for (unsigned m = 0; m < 4; ++m) {
    const Row& elements = rows[8 * m + g];
    to[m] = std::uint32_t{elements[2 * t]} | std::uint32_t{elements[2 * t + 1]} << 16;
  }
  BlockRunner::current().warpgroups().loaded(to, where);
}

}  // namespace convoy::emulator
