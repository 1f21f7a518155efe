// Tests of copies between arrays on GPUs: the call of CUDA that they use, and what they copy.
#include <gtest/gtest.h>

#include "convoy/kernels/runtime/cuda_graph.h"
#include "emulator/runtime/emulator.h"
#include "tests/kernels/device_array.h"
#include "tests/testing/support/gpu.h"

namespace convoy {
namespace {

using testing::Array;
using testing::DeviceArray;
using CudaCopy = testing::GpuTest;

const Array<float>& values() {
  static const auto& values = *new Array<float>(Array<float>::random({257}, 1));
  return values;
}

/// Copies values from an array of `from` to one of `to`. Returns the number of peer copies that this took.
std::uint64_t peer_copies_between(const DeviceContext& from, const DeviceContext& to) {
  const DeviceArray<float> x(from, values()), y(to, {257});
  const std::uint64_t before = emulator::peer_copies();
  copy_bytes_async(from, x.view(), to, y.view());
  testing::expect_same_bits(y.values(), values());
  return emulator::peer_copies() - before;
}

TEST_F(CudaCopy, UsesPeerCopiesOnlyBetweenGpus) {
  for_each_order([&] {
    const DeviceContext first = DeviceContext::create_cuda(0), other_stream = DeviceContext::create_cuda(0);
    EXPECT_EQ(peer_copies_between(first, first), 0U);
    EXPECT_EQ(peer_copies_between(first, other_stream), 0U);
    EXPECT_EQ(peer_copies_between(first, DeviceContext::create_cuda(1)), 1U);
  });
}

TEST_F(CudaCopy, CapturesNoPeerCopyOnOneGpu) {
  for_each_order([&] {
    const DeviceContext gpu = DeviceContext::create_cuda(0);
    const DeviceArray<float> x(gpu, Array<float>({257}, 0)), y(gpu, {257});
    const std::uint64_t before = emulator::peer_copies();
    CudaGraph graph(gpu, [&] { copy_bytes_async(gpu, x.view(), gpu, y.view()); });
    copy_bytes(Device::cpu(), values().view(), gpu, x.view());
    graph.replay();
    testing::expect_same_bits(y.values(), values());
    EXPECT_EQ(emulator::peer_copies(), before);
  });
}

}  // namespace
}  // namespace convoy
