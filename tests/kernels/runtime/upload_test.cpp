#include "convoy/kernels/runtime/upload.h"

#include <gtest/gtest.h>

#include <span>

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;

TEST(Upload, CopiesImmediatelyOnTheCpu) {
  const DeviceContext cpu = Device::cpu();
  EXPECT_TRUE(cpu.host() == cpu);
  const Array<float> from({37}, 3.0f);
  Array<float> to({37});
  Uploader uploader(cpu);
  const Uploader::Copy copy{.from = from.view(), .to = to.view()};
  const Upload upload = uploader.start(std::span(&copy, 1));
  EXPECT_TRUE(upload.done());
  upload.wait();
  upload.wait_on_compute_stream();
  testing::expect_same_bits(to, from);
}

}  // namespace
}  // namespace convoy
