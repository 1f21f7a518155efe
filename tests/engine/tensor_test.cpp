#include "convoy/engine/tensor/tensor.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <memory>

namespace convoy {
namespace {

using ::testing::ElementsAre;

class TensorTest : public ::testing::Test {
 protected:
  const DeviceContext device = DeviceContext::create_cpu({.threads = 1});
};

TEST_F(TensorTest, CopiesShareBytesAndClonesDoNot) {
  const Tensor a = Tensor::from(std::vector<float>{1, 2, 3}, {3}, device);
  const Tensor copy = a, clone = a.clone();
  a.view().as<float>()[0] = 9;
  EXPECT_THAT(copy.to_vector<float>(), ElementsAre(9, 2, 3));
  EXPECT_THAT(clone.to_vector<float>(), ElementsAre(1, 2, 3));
  EXPECT_EQ(copy.view().data, a.view().data);
  EXPECT_NE(clone.view().data, a.view().data);
  EXPECT_FALSE(a.is_only_owner());
  EXPECT_TRUE(clone.is_only_owner());
}

TEST_F(TensorTest, ReshapeRowsAndSliceShareStorage) {
  const Tensor a = Tensor::from(std::vector<std::int32_t>{0, 1, 2, 3, 4, 5}, {3, 2}, device);
  EXPECT_EQ(a.reshape({2, 3}).shape(), (Shape{2, 3}));
  EXPECT_THAT(a.rows(1, 3).to_vector<std::int32_t>(), ElementsAre(2, 3, 4, 5));
  EXPECT_THAT(a.rows(1, 3).rows(1, 2).to_vector<std::int32_t>(), ElementsAre(4, 5));
  EXPECT_THAT(a.slice(3, {2}).to_vector<std::int32_t>(), ElementsAre(3, 4));
  EXPECT_EQ(a.rows(2, 2).numel(), 0);
  EXPECT_THROW(a.reshape({4, 2}), UsageError);
  EXPECT_THROW(a.rows(2, 4), UsageError);
  EXPECT_THROW(a.rows(-1, 1), UsageError);
  EXPECT_THROW(a.slice(5, {2}), UsageError);
}

TEST_F(TensorTest, KeepsMemoryOfAnotherOwner) {
  const auto memory = std::make_shared<std::array<float, 6>>(std::array<float, 6>{0, 1, 2, 3, 4, 5});
  {
    const Tensor rows = Tensor::from_memory(memory, {3, 2}, DType::f32, device).rows(1, 3);
    EXPECT_EQ(rows.view().data, memory->data() + 2);
    EXPECT_THAT(rows.to_vector<float>(), ElementsAre(2, 3, 4, 5));
    EXPECT_EQ(memory.use_count(), 2);
  }
  EXPECT_EQ(memory.use_count(), 1);
  EXPECT_EQ(device.memory().stats().in_use, 0u);
}

TEST_F(TensorTest, ConvertsBetweenTypes) {
  const Tensor a = Tensor::from(std::vector<double>{-1.5, 0, 300.25}, {3}, device);
  EXPECT_THAT(a.to(DType::f32).to_vector<float>(), ElementsAre(-1.5f, 0, 300.25f));
  EXPECT_THAT(a.to(DType::u8).to_vector<std::uint8_t>(), ElementsAre(0, 0, 255));
  EXPECT_EQ(a.to(DType::f64).view().data, a.view().data);
  EXPECT_EQ(Tensor::full({1}, 2.5, DType::bf16, device).item(), 2.5);
  EXPECT_THROW(a.to_vector<float>(), UsageError);
  EXPECT_THROW(a.item(), UsageError);
}

TEST_F(TensorTest, EmptyAndScalarShapes) {
  EXPECT_EQ(Tensor::zeros({}, DType::f32, device).numel(), 1);
  const Tensor empty = Tensor::zeros({0, 3}, DType::f32, device);
  EXPECT_EQ(empty.numel(), 0);
  EXPECT_TRUE(empty.to_vector<float>().empty());
  EXPECT_EQ(empty.clone().shape(), (Shape{0, 3}));
  EXPECT_FALSE(Tensor().defined());
  EXPECT_THROW(Tensor().view(), UsageError);
  EXPECT_THROW((Shape{1, 2, 3, 4, 5, 6, 7}), UsageError);
  EXPECT_THROW((Shape{-1}), UsageError);
  EXPECT_THROW(Tensor::from(std::vector<float>{1, 2}, {3}, device), UsageError);
}

TEST_F(TensorTest, MemoryReturnsToTheAllocator) {
  const std::size_t before = device.memory().stats().in_use;
  {
    const Tensor a = Tensor::zeros({1000}, DType::f32, device);
    const Tensor view = a.rows(10, 20);
    EXPECT_GE(device.memory().stats().in_use, before + 4000);
  }
  EXPECT_EQ(device.memory().stats().in_use, before);
}

}  // namespace
}  // namespace convoy
