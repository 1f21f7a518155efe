// Half copies of parameters: which there are, who brings them up to date, and what cast() makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "engine/autograd/backward.h"
#include "engine/io/checkpoint.h"
#include "engine/io/state_dict.h"
#include "engine/nn/layers.h"
#include "engine/ops/ops.h"
#include "kernels/runtime/check.h"
#include "tests/support/temp_folder.h"
#include "tests/support/tiny_training.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using testing::TinyTraining;

std::vector<double> values_of(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

Variable leaf(const std::vector<float>& values) {
  return Variable(Tensor::from(values, {static_cast<std::int64_t>(values.size())}, Device::cpu()), true);
}

void expect_fresh_copies(const Module& model, DType dtype) {
  for (const NamedParameter& parameter : model.parameters()) {
    const Tensor& copy = parameter.variable.half_copy();
    const bool is_norm =
        parameter.kind == ParameterKind::norm_scale || parameter.kind == ParameterKind::norm_shift;
    ASSERT_EQ(copy.defined(), !is_norm) << parameter.name;
    if (is_norm) continue;
    EXPECT_EQ(copy.dtype(), dtype) << parameter.name;
    EXPECT_EQ(values_of(copy), values_of(parameter.variable.value().to(dtype))) << parameter.name;
  }
}

TEST(HalfCopies, FollowTheParameters) {
  TinyTraining training("sgd");
  training.net->refresh_half_copies();
  for (const NamedParameter& parameter : training.net->parameters())
    EXPECT_FALSE(parameter.variable.half_copy().defined()) << "nobody asked for any";
  for (const DType dtype : {DType::f16, DType::bf16}) {
    training.net->keep_half_copies(dtype);
    expect_fresh_copies(*training.net, dtype);
    training.net->initialize(7);
    expect_fresh_copies(*training.net, dtype);
    training.step(1);
    expect_fresh_copies(*training.net, dtype);
  }
  EXPECT_THROW(training.net->keep_half_copies(DType::f32), UsageError);
}

TEST(HalfCopies, FollowAModelThatMoves) {
  const auto net = TinyTraining().net;
  net->keep_half_copies(DType::bf16);
  net->to(Device::cpu());
  expect_fresh_copies(*net, DType::bf16);
  net->to(DType::f64);
  expect_fresh_copies(*net, DType::bf16);
}

TEST(HalfCopies, FollowWhatIsLoaded) {
  const testing::TempFolder folder;
  TinyTraining saved("sgd", DType::f32, 2);
  saved.step(1);
  const auto path = CheckpointFolder(folder.path()).save(*saved.net, *saved.optimizer, {.step = 1}, false);
  TinyTraining loaded, imported;
  for (const TinyTraining* training : {&loaded, &imported}) training->net->keep_half_copies(DType::f16);
  load_checkpoint(path, *loaded.net, loaded.optimizer.get());
  expect_fresh_copies(*loaded.net, DType::f16);
  EXPECT_EQ(parameters_hash(*loaded.net), parameters_hash(*saved.net));
  import_tensors(*imported.net, export_tensors(*saved.net), "a test");
  expect_fresh_copies(*imported.net, DType::f16);
}

TEST(HalfCopies, AreNotReadInSinglePrecision) {
  TinyTraining with_copies, without;
  with_copies.net->keep_half_copies(DType::bf16);
  for (const NamedParameter& parameter : with_copies.net->parameters())
    if (const Tensor& copy = parameter.variable.half_copy(); copy.defined())
      copy.copy_from(Tensor::full(copy.shape(), 77, copy.dtype(), copy.device()));
  for (int step = 0; step < 2; ++step) {
    with_copies.step(step);
    without.step(step);
  }
  EXPECT_EQ(parameters_hash(*with_copies.net), parameters_hash(*without.net));
}

TEST(HalfCopies, AreRefusedWhereTheyDoNotFit) {
  const Variable x = leaf({1, 2});
  const auto tensor = [](Shape shape, DType dtype) { return Tensor::zeros(shape, dtype, Device::cpu()); };
  EXPECT_THROW(x.set_half_copy(tensor({2}, DType::f32)), UsageError);
  EXPECT_THROW(x.set_half_copy(tensor({1, 2}, DType::f16)), UsageError);
  EXPECT_THROW((x * 2.0).set_half_copy(tensor({2}, DType::f16)), UsageError);
  x.set_half_copy(tensor({2}, DType::f16));
  x.set_half_copy(Tensor());
  EXPECT_FALSE(x.half_copy().defined());
  x.set_half_copy(tensor({2}, DType::f16));
  x.set_value(tensor({3}, DType::f32));
  EXPECT_FALSE(x.half_copy().defined()) << "of the old value";
}

TEST(Cast, TakesTheCopyOfItsType) {
  const Variable x = leaf({1.0009765625f, -3});  // 1 + 2^-10: f16 holds it, bf16 does not
  x.set_half_copy(x.value().to(DType::f16));
  EXPECT_TRUE(cast(x, DType::f16).value().shares_storage_with(x.half_copy()));
  EXPECT_THAT(values_of(cast(x, DType::bf16).value()), ElementsAre(1, -3));
  EXPECT_TRUE(cast(x, DType::f32).value().shares_storage_with(x.value()));
}

TEST(Cast, LeavesAGradientInTheLeafsType) {
  for (const bool keeps_a_copy : {false, true}) {
    SCOPED_TRACE(keeps_a_copy);
    const Variable x = leaf({1, 2});
    if (keeps_a_copy) x.set_half_copy(x.value().to(DType::bf16));
    const Tensor bucket = Tensor::full({2}, 77, DType::f32, Device::cpu());
    x.set_grad_storage(bucket);
    const Tensor seed = Tensor::from(std::vector<double>{3, -5}, {2}, Device::cpu()).to(DType::bf16);
    backward(cast(x, DType::bf16), {.seed = seed});
    EXPECT_THAT(values_of(bucket), ElementsAre(3, -5)) << "written, where the leaf wants it";
    backward(cast(x, DType::bf16), {.accumulate = true, .seed = seed});
    EXPECT_THAT(values_of(bucket), ElementsAre(6, -10)) << "a second micro-batch";

    // Used twice in one graph: both contributions land in the leaf, the first written, the second added.
    const auto there_and_back = [&] { return cast(cast(x, DType::bf16), DType::f32); };
    backward(sum(there_and_back() * 3.0 + there_and_back() * 4.0));
    EXPECT_THAT(values_of(bucket), ElementsAre(7, 7));
  }
}

}  // namespace
}  // namespace convoy
