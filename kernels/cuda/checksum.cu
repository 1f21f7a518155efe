// kernels/checksum.h on the GPU. The terms of the checksum are integers, so the order of their sum does not
// matter, and blocks add theirs by atomics.
#include "convoy/kernels/checksum.h"

#include <algorithm>

#include "convoy/kernels/base/checksum.h"
#include "convoy/kernels/cuda/primitives/block_reduce.h"
#include "convoy/kernels/elementwise.h"

namespace convoy::kernels {
namespace {

using Word = unsigned long long;  // of 64 bits, as atomicAdd() expects it

constexpr int kBlock = 256;
constexpr int kMaxBlocks = 1024;
constexpr int kLanes = static_cast<int>(Checksum::kLanes);
static_assert(sizeof(Word) == sizeof(std::uint64_t) && kBlock % kLanes == 0);

/// Adds the words of a few lines. Each thread has words of one lane only.
__global__ void __launch_bounds__(kBlock)
    checksum_kernel(const unsigned char* bytes, std::int64_t count, Word* value) {
  constexpr std::int64_t kWord = sizeof(Word);
  const std::int64_t words = (count + kWord - 1) / kWord, lines = (words + kLanes - 1) / kLanes;
  const auto thread = static_cast<std::int64_t>(blockIdx.x) * kBlock + threadIdx.x;
  Word factor = 1;
  for (int lane = 0; lane < thread % kLanes; ++lane) factor *= Checksum::kFactor;
  Word sum = 0;
  for (std::int64_t i = thread; i < words; i += static_cast<std::int64_t>(gridDim.x) * kBlock) {
    Word word = 0;
    if ((i + 1) * kWord <= count)
      word = reinterpret_cast<const Word*>(bytes)[i];
    else
      for (std::int64_t b = count; b-- > i * kWord;) word = word << 8 | bytes[b];
    sum += word * (1 + 2 * static_cast<Word>(lines - i / kLanes));
  }
  sum = cuda::block_reduce<kBlock>(sum * factor, cuda::Sum{},
                                   cuda::shared_memory<cuda::BlockPartials<Word, kBlock>>());
  if (threadIdx.x == 0) atomicAdd(value, sum);
}

}  // namespace

void checksum(CudaStream& stream, ConstView x, View value) {
  fill(stream, 0, value);
  if (x.bytes() == 0) return;
  const auto count = static_cast<std::int64_t>(x.bytes());
  const unsigned blocks = std::min<unsigned>(kMaxBlocks, blocks_for(count, 8 * kBlock));
  launch(stream, blocks, kBlock, sizeof(cuda::BlockPartials<Word, kBlock>), checksum_kernel,
         x.as<unsigned char>(), count, value.as<Word>());
}

}  // namespace convoy::kernels
