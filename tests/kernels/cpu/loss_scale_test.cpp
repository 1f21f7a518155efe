// Tests of the dynamic loss scale.
#include "convoy/kernels/loss_scale.h"

#include <gtest/gtest.h>

#include "tests/kernels/array.h"

namespace convoy {
namespace {

using testing::Array;

template <class T>
class LossScale : public ::testing::Test {
 protected:
  CpuStream stream{{.threads = 1}};
  Array<T> scale{{1}, {T{1024}}};
  Array<std::int32_t> good_steps{{1}, {0}}, skipped{{1}, {0}}, failed{{1}, {0}};

  void update(std::int32_t non_finite, const kernels::LossScaleOptions& options) {
    const Array<std::int32_t> count({1}, {non_finite});
    kernels::update_loss_scale(stream, count.view(),
                               {.scale = scale.view(),
                                .good_steps = good_steps.view(),
                                .skipped = skipped.view(),
                                .failed = failed.view()},
                               options);
  }
  void expect(double wanted_scale, int wanted_good, int wanted_skipped, int wanted_failed) {
    EXPECT_EQ(scale[0], wanted_scale);
    EXPECT_EQ(good_steps[0], wanted_good);
    EXPECT_EQ(skipped[0], wanted_skipped);
    EXPECT_EQ(failed[0], wanted_failed);
  }
};

using LossScaleTypes = ::testing::Types<float, double>;
TYPED_TEST_SUITE(LossScale, LossScaleTypes);

TYPED_TEST(LossScale, GrowsAfterConsecutiveGoodSteps) {
  const kernels::LossScaleOptions options{.growth = 4, .interval = 3, .maximum = 8192};
  this->update(0, options);
  this->update(0, options);
  this->expect(1024, 2, 0, 0);
  this->update(0, options);
  this->expect(4096, 0, 0, 0);
  for (int i = 0; i < 3; ++i) this->update(0, options);
  this->expect(8192, 0, 0, 0);  // not above the maximum
}

TYPED_TEST(LossScale, BacksOffAtOverflowAndRestartsCount) {
  const kernels::LossScaleOptions options{.backoff = 0.25, .interval = 3, .minimum = 1};
  this->update(0, options);
  this->update(0, options);
  this->update(7, options);
  this->expect(256, 0, 1, 0);
  this->update(0, options);
  this->update(0, options);
  this->expect(256, 2, 1, 0);  // the two before the overflow do not count
}

TYPED_TEST(LossScale, FailsIfMinimumScaleOverflows) {
  const kernels::LossScaleOptions options{.interval = 1, .minimum = 600};
  this->update(1, options);
  this->expect(600, 0, 1, 0);  // halved, but not below the minimum, which may still work
  this->update(1, options);
  this->expect(600, 0, 2, 1);
  this->update(0, options);
  this->expect(1200, 0, 2, 1);  // the failure flag stays set
}

TYPED_TEST(LossScale, FixedScaleFailsAtFirstOverflow) {
  const kernels::LossScaleOptions options{
      .growth = 1, .backoff = 1, .interval = 1, .minimum = 1024, .maximum = 1024};
  this->update(0, options);
  this->expect(1024, 0, 0, 0);
  this->update(1, options);
  this->expect(1024, 0, 1, 1);
}

}  // namespace
}  // namespace convoy
