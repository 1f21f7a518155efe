#include "emulator/runtime/warpgroup.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "emulator/checking/access_checker.h"
#include "emulator/checking/own_code.h"
#include "emulator/counting/formatted.h"
#include "emulator/runtime/block.h"

namespace convoy::emulator {
namespace {

constexpr unsigned kChunk = 16;  // bytes
constexpr unsigned kPatternRows = 8;
/// Where shared memory begins in its address space. Hopper's system has the first bytes.
constexpr std::uint32_t kSharedBegin = 1024;
constexpr std::uint32_t kInFlight = 0x7fc0da7au;  // a NaN

std::uint32_t bits_at(std::uint64_t bits, unsigned first, unsigned count) {
  return static_cast<std::uint32_t>(bits >> first & ((std::uint64_t{1} << count) - 1));
}

/// Returns the shared addresses of the 16-byte chunks of a matrix, in groups of 8 that are read at once: the rows
/// of a core matrix of 8 x 16 bytes. There are two chunks for each row of a, or column of b.
std::uint32_t chunk_address(const MatrixDescriptor& matrix, bool is_transposed, unsigned chunk) {
  const unsigned core = chunk / 8, row = chunk % 8;
  const unsigned along_n = core / 2 * 8, along_k = core % 2 * 8;
  return is_transposed ? matrix.address(along_n, along_k + row, true)
                       : matrix.address(along_n + row, along_k, false);
}

/// Reports registers of d that other instructions have written since the multiplication has begun.
void check_in_flight(const WarpgroupProduct& product, Where where) {
  const auto is_in_flight = [](float value) { return std::bit_cast<std::uint32_t>(value) == kInFlight; };
  if (!std::all_of(product.d, product.d + product.columns / 2, is_in_flight))
    BlockRunner::current().fault(
        "registers of d have changed before the wgmma.mma_async that adds to them has ended", where);
}

const char* host_address(std::uint32_t shared) {
  return BlockRunner::shared_memory() + (shared - kSharedBegin);
}

}  // namespace

std::uint32_t shared_address(const void* shared) {
  return kSharedBegin +
         static_cast<std::uint32_t>(static_cast<const char*>(shared) - BlockRunner::shared_memory());
}

namespace {
constexpr unsigned kRankShift = 24;  // of the rank + 1 in addresses of other blocks

void* own_shared(std::uint32_t address, Where where) {
  const std::uint32_t offset = (address & ((1u << kRankShift) - 1)) - kSharedBegin;
  if (offset >= BlockRunner::current().used_shared_bytes())
    BlockRunner::current().fault(
        "an address of shared memory that is outside of the block's; expected one of "
        "__cvta_generic_to_shared or mapa",
        where);
  return const_cast<char*>(BlockRunner::shared_memory()) + offset;
}
}  // namespace

std::uint32_t map_shared_address(std::uint32_t address, std::uint32_t rank, Where where) {
  const OwnCode scope;
  void* const own = own_shared(address, where);
  BlockRunner::current().map_shared(own, rank, where);  // reports a rank that does not exist
  return (rank + 1) << kRankShift | shared_address(own);
}

void* at_shared_address(std::uint32_t address, Where where) {
  const OwnCode scope;
  void* const own = own_shared(address, where);
  const std::uint32_t rank = address >> kRankShift;
  return rank == 0 ? own : BlockRunner::current().map_shared(own, rank - 1, where);
}

MatrixDescriptor::MatrixDescriptor(std::uint64_t bits)
    : start(bits_at(bits, 0, 14) * kChunk),
      leading_bytes(bits_at(bits, 16, 14) * kChunk),
      stride_bytes(bits_at(bits, 32, 14) * kChunk),
      base_offset(bits_at(bits, 49, 3)),
      row_bytes(kChunk << std::array{0u, 3u, 2u, 1u}[bits_at(bits, 62, 2)]),
      has_reserved_bits((bits_at(bits, 14, 2) | bits_at(bits, 30, 2) | bits_at(bits, 46, 3) |
                         bits_at(bits, 52, 10)) != 0) {}

std::string MatrixDescriptor::error() const {
  if (has_reserved_bits) return "a matrix descriptor with bits outside its fields";
  if (row_bytes == kChunk)
    return base_offset == 0 ? "" : "a matrix descriptor with a base offset, which needs a swizzle mode";
  const std::uint32_t pattern_bytes = kPatternRows * row_bytes;
  if (stride_bytes % pattern_bytes != 0)
    return formatted("a matrix descriptor whose stride offset, {} B, is not a multiple of {} B", stride_bytes,
                     pattern_bytes);
  // The matrix may begin at any chunk of the first row of a pattern.
  const std::uint32_t pattern = start / 128 * 128;
  const unsigned expected = pattern % pattern_bytes == 0 ? 0 : pattern / 128 % 8;
  if (start % 128 >= row_bytes || base_offset != expected)
    return formatted(
        "a matrix descriptor that begins at {}, with base offset {}; for this swizzle mode the matrix begins in "
        "the first row of a pattern, which is at a multiple of {} B unless the base offset says otherwise",
        start, base_offset, pattern_bytes);
  return "";
}

std::uint32_t MatrixDescriptor::address(unsigned n, unsigned k, bool is_transposed) const {
  constexpr unsigned kElement = 2, kElements = kChunk / kElement;
  std::uint32_t at = start;
  if (row_bytes == kChunk) {  // core matrices of 8 rows, one after another
    const unsigned contiguous = is_transposed ? n : k, other = is_transposed ? k : n;
    at += contiguous % kElements * kElement + other % kPatternRows * kChunk;
    at += n / 8 * stride_bytes + k / 8 * leading_bytes;
    return at;
  }
  if (is_transposed) {
    const unsigned per_row = row_bytes / kElement;
    at += n % per_row * kElement + n / per_row * leading_bytes;
    at += k % kPatternRows * row_bytes + k / kPatternRows * stride_bytes;
  } else {
    at += n % kPatternRows * row_bytes + n / kPatternRows * stride_bytes + k * kElement;
  }
  // The bits of the chunk are combined with those of the row: bits 4 to 6 with bits 7 to 9, as many as there are
  // chunks in a row. A pattern that begins elsewhere shifts the latter.
  const std::uint32_t row = (at >> 7) - base_offset;
  return at ^ (row & (row_bytes / kChunk - 1)) << 4;
}

void Warpgroups::begin_block(std::size_t threads, std::size_t shared_bytes) {
  shared_bytes_ = shared_bytes;
  threads_.assign(threads, {});
  instructions_.assign((threads + kThreads - 1) / kThreads, {});
  operands_.assign((threads + 31) / 32, {});
}

const char* Warpgroups::to_string(Kind kind) {
  switch (kind) {
    case Kind::fence: return "wgmma.fence";
    case Kind::multiply_add: return "wgmma.mma_async";
    case Kind::commit: return "wgmma.commit_group";
    case Kind::wait: return "wgmma.wait_group";
  }
  return "";
}

std::string Warpgroups::end_block() const {
  for (std::size_t thread = 0; thread < threads_.size(); ++thread) {
    const auto& instructions = instructions_[thread / kThreads];
    if (const std::size_t executed = threads_[thread].executed; executed < instructions.size())
      return formatted("thread {} has ended without {}, which other threads of its warpgroup have executed",
                       thread, to_string(instructions[executed].kind));
  }
  return "";
}

std::size_t Warpgroups::execute(Kind kind, std::uint64_t operand, Where where) {
  const BlockRunner& runner = BlockRunner::current();
  if (threads_.size() % kThreads != 0)
    runner.fault(formatted("{} in a block of {} threads, which is not a multiple of {}", to_string(kind),
                           threads_.size(), kThreads),
                 where);
  auto& instructions = instructions_[running_thread() / kThreads];
  const std::size_t number = threads_[running_thread()].executed++;
  if (number == instructions.size()) {
    instructions.push_back({kind, operand, where});
    return number;
  }
  const Instruction& others = instructions[number];
  if (others.kind != kind || others.where.line() != where.line())
    runner.fault(formatted("{} here, while other threads of the warpgroup execute {}", to_string(kind),
                           to_string(others.kind)),
                 where);
  if (others.operand != operand)
    runner.fault(formatted("{} whose {} is not that of other threads of the warpgroup", to_string(kind),
                           kind == Kind::wait ? "number of groups" : "matrix descriptor"),
                 where);
  return number;
}

void Warpgroups::fence(Where where) {
  execute(Kind::fence, 0, where);
  Thread& thread = threads_[running_thread()];
  thread.has_fenced = true;
  thread.loaded.clear();
  thread.used.clear();
  std::erase_if(thread.accumulators, [](const auto& entry) { return entry.second.pending == 0; });
}

void Warpgroups::check_fenced(const Thread& thread, const WarpgroupProduct& product, Where where) const {
  const BlockRunner& runner = BlockRunner::current();
  constexpr const char* kAfter = "after the last wgmma.fence";
  if (!thread.has_fenced) runner.fault("wgmma.mma_async without a wgmma.fence before", where);
  if (product.a != nullptr &&
      std::find(thread.loaded.begin(), thread.loaded.end(), product.a) != thread.loaded.end())
    runner.fault(formatted("wgmma.mma_async with registers of a that were loaded {}", kAfter), where);
  for (const auto& [registers, values] : thread.used)
    if (registers == product.a && !std::equal(values.begin(), values.end(), product.a))
      runner.fault(formatted("wgmma.mma_async with registers of a that were changed {}", kAfter), where);
  const auto found = thread.accumulators.find(product.d);
  if (found == thread.accumulators.end()) return;
  const std::vector<float>& values = found->second.values;
  if (values.size() != product.columns / 2)
    runner.fault("wgmma.mma_async of another shape with the same registers of d, without a wgmma.fence",
                 where);
  if (found->second.pending == 0 && std::memcmp(values.data(), product.d, values.size() * sizeof(float)) != 0)
    runner.fault(formatted("wgmma.mma_async with registers of d that were changed {}", kAfter), where);
}

/// Checks the descriptor of a matrix with so many rows (of a) or columns (of b).
void Warpgroups::check_bounds(const MatrixDescriptor& matrix, bool is_transposed, unsigned rows,
                              Where where) const {
  const BlockRunner& runner = BlockRunner::current();
  if (const std::string error = matrix.error(); !error.empty()) runner.fault(error, where);
  for (unsigned chunk = 0; chunk < 2 * rows; ++chunk) {
    const std::uint32_t address = chunk_address(matrix, is_transposed, chunk);
    if (address < kSharedBegin || address + kChunk > kSharedBegin + shared_bytes_)
      runner.fault(
          formatted("a matrix descriptor with address {}, outside the block's shared memory", address),
          where);
  }
}

void Warpgroups::multiply_add(const WarpgroupProduct& product, const void* site, Where where) {
  if (AccessCounter* const counter = AccessCounter::current()) {
    if (running_thread() % 32 == 0) counter->multiply(2ull * 16 * product.columns * kDepth);
    // The warpgroup reads each matrix once, a core matrix at a time.
    const auto read = [&](std::uint64_t bits, bool is_transposed, unsigned rows) {
      for (unsigned chunk = running_thread() % kThreads; chunk < 2 * rows; chunk += kThreads)
        observe(host_address(chunk_address(MatrixDescriptor(bits), is_transposed, chunk)), kChunk,
                AccessKind::load, site, Pipe::tensor_core);
    };
    read(product.b, product.is_transposed, product.columns);
    if (product.a == nullptr) read(product.shared_a, product.is_a_transposed, kRows);
  }
  if (!tensor_cores_compute()) return;
  // The two descriptors as one operand, which is compared between threads.
  const std::uint64_t operand =
      product.b ^ std::rotl(product.shared_a, 21) ^ (product.a == nullptr ? 1u : 0u) << 31;
  const std::size_t number = execute(Kind::multiply_add, operand, where);
  Thread& thread = threads_[running_thread()];
  check_fenced(thread, product, where);
  if (running_thread() % 32 == 0) {
    check_bounds(MatrixDescriptor(product.b), product.is_transposed, product.columns, where);
    if (product.a == nullptr)
      check_bounds(MatrixDescriptor(product.shared_a), product.is_a_transposed, kRows, where);
  }
  Fragment a{};
  if (product.a != nullptr) {
    std::copy_n(product.a, a.size(), a.begin());
    thread.used.emplace_back(product.a, a);
  }
  if (thread.seen == nullptr)
    thread.seen =
        std::make_shared<const ThreadClocks::Clock>(BlockRunner::current().clocks().of(running_thread()));
  Accumulator& d = thread.accumulators[product.d];
  if (d.pending++ == 0) {
    d.values.assign(product.d, product.d + product.columns / 2);
    std::fill_n(product.d, product.columns / 2, std::bit_cast<float>(kInFlight));
  }
  thread.open.push_back({product, a, number, where, thread.seen});
}

void Warpgroups::commit(Where where) {
  execute(Kind::commit, 0, where);
  Thread& thread = threads_[running_thread()];
  thread.groups.push_back(std::exchange(thread.open, {}));
  thread.seen = nullptr;
}

/// The lanes of a warp begin and end a wait together, so that they read the same shared memory.
void Warpgroups::wait(unsigned pending, Where where) {
  execute(Kind::wait, pending, where);
  BlockRunner& runner = BlockRunner::current();
  Thread& thread = threads_[running_thread()];
  runner.converge(0xffffffffu, 0, where);
  for (; thread.groups.size() > pending; thread.groups.pop_front())
    for (Multiplication& multiplication : thread.groups.front()) complete(multiplication, where);
  runner.converge(0xffffffffu, 0, where);
  operands_[running_thread() / 32].clear();  // no other lane needs them any more
  runner.clocks().see_reads(running_thread());
}

/// Returns rows (of a) or columns (of b) of a matrix, with the elements of each along k.
std::vector<float> Warpgroups::elements(const MatrixDescriptor& matrix, bool is_transposed, unsigned first,
                                        unsigned count, const Multiplication& multiplication) const {
  BlockRunner& runner = BlockRunner::current();
  const ThreadClocks::Time time = runner.clocks().read(running_thread() / 32);
  std::vector<float> values;
  std::uint32_t last = 0;  // chunk that was read
  for (unsigned n = first; n < first + count; ++n)
    for (unsigned k = 0; k < kDepth; ++k) {
      const std::uint32_t address = matrix.address(n, k, is_transposed);
      if (const std::uint32_t chunk = address / kChunk; chunk != last) {
        runner.chunks().read(address - kSharedBegin, *multiplication.issued, time, multiplication.where);
        last = chunk;
      }
      std::uint16_t bits = 0;
      std::memcpy(&bits, host_address(address), sizeof(bits));
      values.push_back(multiplication.product.widen(bits));
    }
  return values;
}

const Warpgroups::Operands& Warpgroups::operands_of(const Multiplication& multiplication) {
  const unsigned warp = running_thread() / 32;
  const auto [found, is_new] = operands_[warp].try_emplace(multiplication.number);
  if (!is_new) return found->second;
  const WarpgroupProduct& product = multiplication.product;
  const std::vector<float> b =
      elements(MatrixDescriptor(product.b), product.is_transposed, 0, product.columns, multiplication);
  found->second.b.resize(b.size());
  for (unsigned k = 0; k < kDepth; ++k)
    for (unsigned n = 0; n < product.columns; ++n)
      found->second.b[std::size_t{k} * product.columns + n] = b[std::size_t{n} * kDepth + k];
  if (product.a == nullptr)
    found->second.a = elements(MatrixDescriptor(product.shared_a), product.is_a_transposed, warp % 4 * 16, 16,
                               multiplication);
  return found->second;
}

/// All lanes of a warp call it together.
void Warpgroups::complete(Multiplication& multiplication, Where where) {
  const WarpgroupProduct& product = multiplication.product;
  BlockRunner& runner = BlockRunner::current();
  std::array<Fragment, 32> a{};
  if (product.a != nullptr) {
    Fragment own;
    std::copy_n(product.a, own.size(), own.begin());
    if (own != multiplication.a)
      runner.fault("registers of a have changed before the wgmma.mma_async that reads them has ended",
                   multiplication.where);
    a = runner.of_all_lanes(own, where);
  }
  const Operands& operands = operands_of(multiplication);
  Accumulator& d = threads_[running_thread()].accumulators.at(product.d);
  const unsigned lane = runner.lane(), g = lane / 4, t = lane % 4;
  const auto left_of = [&](unsigned k, unsigned half) {
    if (product.a == nullptr) return operands.a[std::size_t{g + 8 * half} * kDepth + k];
    const std::uint32_t pair = a[4 * g + k / 2 % 4][half + k / 8 * 2];
    return product.widen(static_cast<std::uint16_t>(pair >> (k % 2 * 16)));
  };
  for (unsigned k = 0; k < kDepth; ++k)
    for (unsigned half = 0; half < 2; ++half) {
      const float left = left_of(k, half);
      const float* const right = &operands.b[std::size_t{k} * product.columns];
      for (unsigned column = 0; column < product.columns; column += 8)
        for (unsigned e = 0; e < 2; ++e)
          d.values[column / 2 + 2 * half + e] += left * right[column + 2 * t + e];
    }
  check_in_flight(product, multiplication.where);
  if (--d.pending == 0) std::copy(d.values.begin(), d.values.end(), product.d);
}

void Warpgroups::loaded(const std::uint32_t* registers, Where where) {
  Thread& thread = threads_[running_thread()];
  if (!thread.has_fenced) return;
  thread.loaded.push_back(registers);
  const auto check = [&](const std::vector<Multiplication>& group) {
    for (const Multiplication& multiplication : group)
      if (multiplication.product.a == registers)
        BlockRunner::current().fault("ldmatrix to registers of a while a wgmma.mma_async reads them", where);
  };
  for (const auto& group : thread.groups) check(group);
  check(thread.open);
}

void warpgroup_fence(Where where) {
  const OwnCode scope;
  if (tensor_cores_compute()) BlockRunner::current().warpgroups().fence(where);
}
void warpgroup_commit(Where where) {
  const OwnCode scope;
  if (tensor_cores_compute()) BlockRunner::current().warpgroups().commit(where);
}
void warpgroup_wait(unsigned pending, Where where) {
  const OwnCode scope;
  if (tensor_cores_compute()) BlockRunner::current().warpgroups().wait(pending, where);
}
void warpgroup_multiply_add(const WarpgroupProduct& product, Where where) {
  const OwnCode scope;
  BlockRunner::current().warpgroups().multiply_add(
      product, static_cast<const char*>(__builtin_return_address(0)) - 1, where);
}
void fence_async_proxy() {
  const OwnCode scope;
  BlockRunner::current().chunks().fence_async_proxy();
}

}  // namespace convoy::emulator
