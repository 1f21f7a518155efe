// Matrix multiplications by warpgroups: wgmma of PTX. include/ptx.h has the instructions.
#pragma once

#include <cuda_runtime.h>

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "emulator/checking/thread_clocks.h"

namespace convoy::emulator {

class BlockRunner;

/// A matrix descriptor (PTX ISA, "Matrix Descriptor Format"): where a matrix is in shared memory. Its
/// canonical layouts consist of *patterns* of 8 rows, within which 16-byte chunks are exchanged. A row has as
/// many bytes as the swizzle mode says.
struct MatrixDescriptor {
  std::uint32_t start, leading_bytes, stride_bytes;  // byte offsets
  unsigned base_offset;
  unsigned row_bytes;  // 16 without swizzle, else 32, 64 or 128
  bool has_reserved_bits;

  explicit MatrixDescriptor(std::uint64_t bits);
  /// Returns the first violation of a rule of the PTX ISA, or "".
  std::string error() const;
  /// Returns the shared address of b[k][n] with elements of 2 bytes. `is_transposed`: n is contiguous
  /// ("MN-major").
  std::uint32_t address(unsigned n, unsigned k, bool is_transposed) const;
};

/// Returns whether tensor cores compute (set_tensor_cores_compute() of emulator.h).
bool tensor_cores_compute();

/// The multiplications of the warpgroups of a block, and what its threads have done to the memory that they
/// read. A multiplication reads and adds when its warp waits, which is the latest time that PTX permits.
/// Until then the registers of d are NaN. All functions act for the thread that is running.
class Warpgroups {
 public:
  void begin_block(std::size_t threads, std::size_t shared_bytes);
  /// Returns "" if all threads of each warpgroup have executed the same instructions, otherwise a
  /// description.
  std::string end_block() const;

  void fence(Where where);
  void multiply_add(const WarpgroupProduct& product, const void* site, Where where);
  void commit(Where where);
  void wait(unsigned pending, Where where);

  /// ldmatrix has written to these registers.
  void loaded(const std::uint32_t* registers, Where where);

 private:
  static constexpr unsigned kThreads = 128;  // of a warpgroup
  static constexpr unsigned kRows = 64;      // of a
  static constexpr unsigned kDepth = 16;     // of a multiplication

  enum class Kind : std::uint8_t { fence, multiply_add, commit, wait };
  /// An instruction of a warpgroup. `operand`: the descriptor, or how many groups may be pending.
  struct Instruction {
    Kind kind;
    std::uint64_t operand;
    Where where;
  };
  using Fragment = std::array<std::uint32_t, 4>;
  struct Multiplication {
    WarpgroupProduct product;
    Fragment a;          // at its start, if it is in registers
    std::size_t number;  // in the warpgroup's instructions
    Where where;
    std::shared_ptr<const ThreadClocks::Clock> issued;  // what the thread had seen then
  };
  /// The values of registers of d.
  struct Accumulator {
    std::vector<float> values;
    unsigned pending = 0;  // multiplications
  };
  struct Thread {
    std::size_t executed = 0;  // instructions of its warpgroup
    bool has_fenced = false;
    std::deque<std::vector<Multiplication>> groups;               // oldest first
    std::vector<Multiplication> open;                             // in no group yet
    std::shared_ptr<const ThreadClocks::Clock> seen;              // when the open group began
    std::map<float*, Accumulator> accumulators;                   // used since the last fence, or pending
    std::vector<const std::uint32_t*> loaded;                     // by ldmatrix, since the last fence
    std::vector<std::pair<const std::uint32_t*, Fragment>> used;  // as a, since the last fence
  };
  /// The matrices of a multiplication in shared memory, as a warp has read them.
  struct Operands {
    std::vector<float> a;  // [16, kDepth], the rows of the warp; empty if a is in registers
    std::vector<float> b;  // [kDepth, columns]
  };

  static const char* to_string(Kind kind);
  /// Returns the number of this instruction.
  std::size_t execute(Kind kind, std::uint64_t operand, Where where);
  void check_fenced(const Thread& thread, const WarpgroupProduct& product, Where where) const;
  void check_bounds(const MatrixDescriptor& matrix, bool is_transposed, unsigned rows, Where where) const;
  void complete(Multiplication& multiplication, Where where);
  const Operands& operands_of(const Multiplication& multiplication);
  std::vector<float> elements(const MatrixDescriptor& matrix, bool is_transposed, unsigned first,
                              unsigned count, const Multiplication& multiplication) const;

  std::size_t shared_bytes_ = 0;
  std::vector<Thread> threads_;
  std::vector<std::vector<Instruction>> instructions_;  // of each warpgroup
  /// Of each warp, by the number of the multiplication, while the warp waits.
  std::vector<std::map<std::size_t, Operands>> operands_;
};

}  // namespace convoy::emulator
