// The instructions of include/ptx.h.
#include <cuda_runtime.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>
#include <utility>

#include "emulator/checking/access_checker.h"
#include "emulator/checking/own_code.h"
#include "emulator/program/cuda_pipeline.h"
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

/// Gives each lane its elements of four matrices of 8 x 8, of which lane l passes row l % 8 of matrix l / 8.
void exchange_rows(const void* row, bool is_transposed, std::uint32_t (&to)[4], Where where) {
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
    const auto element = [&](unsigned i) {
      return std::uint32_t{is_transposed ? rows[8 * m + i][g] : rows[8 * m + g][i]};
    };
    to[m] = element(2 * t) | element(2 * t + 1) << 16;
  }
}

/// Returns where the destination of a copy is in shared memory.
std::uint32_t offset_of_copy(const void* to, Where where) {
  const std::ptrdiff_t offset = static_cast<const char*>(to) - BlockRunner::shared_memory();
  if (offset < 0 || offset >= static_cast<std::ptrdiff_t>(kMaxSharedBytes))
    BlockRunner::current().fault("the destination of an asynchronous copy is not in shared memory", where);
  return static_cast<std::uint32_t>(offset);
}

void begin_copy(void* shared, const void* global, bool is_inside, const void* next, Where where) {
  check_aligned(shared, "the destination of an asynchronous copy", where);
  check_aligned(global, "the source of an asynchronous copy", where);
  if (is_inside) count(global, /*is_store=*/false, next);
  count(shared, /*is_store=*/true, next);
  BlockRunner& runner = BlockRunner::current();
  runner.chunks().begin_copy(offset_of_copy(shared, where), where);
  runner.copies().open.push_back({.to = shared, .from = is_inside ? global : nullptr});
}

void load_registers(std::uint32_t& to0, std::uint32_t& to1, std::uint32_t& to2, std::uint32_t& to3,
                    std::uint32_t address, bool is_transposed, const void* next, Where where) {
  const std::uint32_t offset = address - shared_address(BlockRunner::shared_memory());
  if (offset + std::size_t{kBytes} > BlockRunner::current().used_shared_bytes())
    BlockRunner::current().fault(
        "the row of ldmatrix is outside of the block's shared memory; expected an address of "
        "__cvta_generic_to_shared",
        where);
  const char* const row = BlockRunner::shared_memory() + offset;
  check_aligned(row, "the address of a matrix's row", where);
  count(row, /*is_store=*/false, next);
  std::uint32_t to[4];
  exchange_rows(row, is_transposed, to, where);
  to0 = to[0], to1 = to[1], to2 = to[2], to3 = to[3];
}

}  // namespace

void set_tensor_cores_compute(bool computes) { tensor_cores_compute_ = computes; }
bool tensor_cores_compute() { return tensor_cores_compute_.load(std::memory_order_relaxed); }

void copy_async(void* shared, const void* global, bool is_inside, Where where) {
  const OwnCode scope;
  begin_copy(shared, global, is_inside, __builtin_return_address(0), where);
}

void commit_copies() {
  const OwnCode scope;
  ThreadCopies& copies = BlockRunner::current().copies();
  copies.groups.push_back(std::exchange(copies.open, {}));
}

void wait_for_copies(unsigned pending) {
  const OwnCode scope;
  BlockRunner& runner = BlockRunner::current();
  runner.barriers().land_copies();
  ThreadCopies& copies = runner.copies();
  for (; copies.groups.size() > pending; copies.groups.pop_front())
    for (const PendingCopy& copy : copies.groups.front())
      copy.land(runner.chunks(), running_thread(), SharedChunks::Proxy::generic);
}

void arrive_after_copies(void* barrier, Where where) {
  const OwnCode scope;
  ThreadCopies& copies = BlockRunner::current().copies();
  std::vector<PendingCopy> all;
  for (const auto& group : copies.groups) all.insert(all.end(), group.begin(), group.end());
  all.insert(all.end(), copies.open.begin(), copies.open.end());
  copies.groups.clear();
  copies.open.clear();
  BlockRunner::current().barriers().arrive_after(barrier, std::move(all), where);
}

void copy_bulk(void* shared, const void* global, unsigned bytes, void* barrier, Where where) {
  const OwnCode scope;
  BlockRunner& runner = BlockRunner::current();
  check_aligned(shared, "the destination of a bulk copy", where);
  check_aligned(global, "the source of a bulk copy", where);
  if (bytes % kBytes != 0)
    runner.fault("found a bulk copy of " + std::to_string(bytes) + " bytes, expected a multiple of 16",
                 where);
  std::vector<PendingCopy> copies;
  for (unsigned at = 0; at < bytes; at += kBytes) {
    char* const to = static_cast<char*>(shared) + at;
    const char* const from = static_cast<const char*>(global) + at;
    count(from, /*is_store=*/false, __builtin_return_address(0));
    count(to, /*is_store=*/true, __builtin_return_address(0));
    runner.chunks().begin_copy(offset_of_copy(to, where), where);
    copies.push_back({.to = to, .from = from});
  }
  runner.barriers().copy_bulk(barrier, std::move(copies), where);
}

void load_matrices(const void* row, std::uint32_t (&to)[4], Where where) {
  const OwnCode scope;
  check_aligned(row, "the address of a matrix's row", where);
  count(row, /*is_store=*/false, __builtin_return_address(0));
  exchange_rows(row, /*is_transposed=*/false, to, where);
  if (tensor_cores_compute()) BlockRunner::current().warpgroups().loaded(to, where);
}

void load_matrices(std::uint32_t& to0, std::uint32_t& to1, std::uint32_t& to2, std::uint32_t& to3,
                   std::uint32_t row, Where where) {
  const OwnCode scope;
  load_registers(to0, to1, to2, to3, row, /*is_transposed=*/false, __builtin_return_address(0), where);
}
void load_transposed_matrices(std::uint32_t& to0, std::uint32_t& to1, std::uint32_t& to2, std::uint32_t& to3,
                              std::uint32_t row, Where where) {
  const OwnCode scope;
  load_registers(to0, to1, to2, to3, row, /*is_transposed=*/true, __builtin_return_address(0), where);
}

void multiply_matrices(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                       float (*widen)(std::uint16_t), Where where) {
  const OwnCode scope;
  const std::array<std::array<std::uint32_t, 6>, 32> all = BlockRunner::current().of_all_lanes(
      std::array<std::uint32_t, 6>{a[0], a[1], a[2], a[3], b[0], b[1]}, where);
  const unsigned g = BlockRunner::current().lane() / 4, t = BlockRunner::current().lane() % 4;
  for (unsigned i = 0; i < 4; ++i)
    for (unsigned k = 0; k < 16; ++k) {  // row g + 8 (i / 2) of a, column 2t + i % 2 of b
      const unsigned half = k % 2 * 16, pair = k % 8 / 2;
      const std::uint32_t left = all[4 * g + pair][i / 2 + 2 * (k / 8)];
      const std::uint32_t right = all[4 * (2 * t + i % 2) + pair][4 + k / 8];
      d[i] +=
          widen(static_cast<std::uint16_t>(left >> half)) * widen(static_cast<std::uint16_t>(right >> half));
    }
}

}  // namespace convoy::emulator

void __pipeline_memcpy_async(void* shared, const void* global, std::size_t size, std::size_t zfill,
                             std::source_location where) {
  using namespace convoy::emulator;
  const OwnCode scope;
  if (size != kBytes || (zfill != 0 && zfill != kBytes))
    BlockRunner::current().fault("found an asynchronous copy of " + std::to_string(size) + " bytes with " +
                                     std::to_string(zfill) + " zeros, expected 16 bytes and none or 16",
                                 where);
  begin_copy(shared, global, zfill == 0, __builtin_return_address(0), where);
}

void __pipeline_commit() { convoy::emulator::commit_copies(); }

void __pipeline_wait_prior(std::size_t pending) {
  convoy::emulator::wait_for_copies(static_cast<unsigned>(pending));
}
