// Instructions of PTX that CUDA C++ has no functions for, with the semantics of the PTX ISA. The wrappers in
// kernels/cuda/primitives call them. All lanes of a warp execute those of matrices together.
#pragma once

#include <cstdint>
#include <source_location>

namespace convoy::emulator {

using Where = std::source_location;

// cp.async.cg.shared.global with 16 bytes, cp.async.commit_group and cp.async.wait_group. A copy reads and
// writes when the thread waits for it, which is the latest time that PTX permits, or never if the thread does
// not wait. `is_inside`: whether 16 or no bytes are read; the others are zero.
void copy_async(void* shared, const void* global, bool is_inside, Where where = Where::current());
void commit_copies();
void wait_for_copies(unsigned pending);

// mbarrier.init, mbarrier.arrive, mbarrier.arrive.expect_tx, and mbarrier.try_wait.parity until it returns true:
// until the current phase of the barrier has ended if it has this parity, which is 0 for the first one.
void initialize_mbarrier(void* barrier, unsigned count, Where where = Where::current());
void arrive_at_mbarrier(void* barrier, Where where = Where::current());
void expect_bytes(void* barrier, unsigned bytes, Where where = Where::current());
void wait_for_mbarrier(void* barrier, unsigned parity, Where where = Where::current());
/// cp.async.mbarrier.arrive.noinc: an arrival when all copies that the thread has started have landed. They land
/// when a thread waits for it.
void arrive_after_copies(void* barrier, Where where = Where::current());
/// cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes, by one thread.
void copy_bulk(void* shared, const void* global, unsigned bytes, void* barrier,
               Where where = Where::current());
// barrier.sync and barrier.arrive of barrier 1 to 15, for `threads` threads.
void named_barrier_sync(unsigned id, unsigned threads, Where where = Where::current());
void named_barrier_arrive(unsigned id, unsigned threads, Where where = Where::current());
/// setmaxnreg.inc and .dec. Checks the number, and at the end of the block the sum of all threads.
void set_max_registers(unsigned count, bool grows, Where where = Where::current());

/// ldmatrix.sync.aligned.m8n8.x4.shared.b16.
void load_matrices(const void* row, std::uint32_t (&to)[4], Where where = Where::current());
/// The same, and with .trans, of the row at an address of shared memory.
void load_matrices(std::uint32_t& to0, std::uint32_t& to1, std::uint32_t& to2, std::uint32_t& to3,
                   std::uint32_t row, Where where = Where::current());
void load_transposed_matrices(std::uint32_t& to0, std::uint32_t& to1, std::uint32_t& to2, std::uint32_t& to3,
                              std::uint32_t row, Where where = Where::current());

/// mma.sync.aligned.m16n8k16.row.col with d += a b: a [16, 16], b [16, 8], d [16, 8]. The products are added in
/// the order of k, each sum rounded to f32; PTX leaves order and rounding open.
void multiply_matrices(float (&d)[4], const std::uint32_t (&a)[4], const std::uint32_t (&b)[2],
                       float (*widen)(std::uint16_t), Where where = Where::current());

/// The operands of wgmma.mma_async with d += a b: a [64, 16] in registers or by its descriptor, b [16, columns] by
/// its descriptor.
struct WarpgroupProduct {
  float* d;                // columns / 2 registers
  unsigned columns;        // a multiple of 8, at most 256
  const std::uint32_t* a;  // 4 registers; null: in shared memory
  std::uint64_t b;         // matrix descriptor
  bool is_transposed;      // imm-trans-b
  float (*widen)(std::uint16_t);
  std::uint64_t shared_a = 0;    // matrix descriptor
  bool is_a_transposed = false;  // imm-trans-a
};
// wgmma.fence, wgmma.mma_async.sync.aligned.m64nNk16.f32.*.* with scale-d, wgmma.commit_group and
// wgmma.wait_group. A multiplication reads a and b and adds to d when its thread waits, which is the latest
// time that PTX permits. Until then d is NaN. The products are added in the order of k; PTX leaves the order
// open.
void warpgroup_fence(Where where = Where::current());
void warpgroup_multiply_add(const WarpgroupProduct& product, Where where = Where::current());
void warpgroup_commit(Where where = Where::current());
void warpgroup_wait(unsigned pending, Where where = Where::current());
/// griddepcontrol.wait: a kernel that may start early must execute it in every thread.
void wait_for_previous_kernel();
/// fence.proxy.async: needed between a copy to shared memory and wgmma, which reads through another proxy.
void fence_async_proxy();
/// Returns the address of shared memory in its own address space, as __cvta_generic_to_shared does.
std::uint32_t shared_address(const void* shared);
/// mapa.shared::cluster.u32: the same address in block `rank` of the cluster; and what is at such an address.
std::uint32_t map_shared_address(std::uint32_t address, std::uint32_t rank, Where where = Where::current());
void* at_shared_address(std::uint32_t address, Where where = Where::current());

}  // namespace convoy::emulator
