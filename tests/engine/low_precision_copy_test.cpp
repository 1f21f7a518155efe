// Tests of the low-precision copies of parameters: which exist, what updates them, and how cast() uses them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/support/temp_directory.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy {
namespace {

using ::testing::ElementsAre;
using testing::TinyTraining;

std::vector<double> values_of(const Tensor& tensor) { return tensor.to(DType::f64).to_vector<double>(); }

Variable leaf(const std::vector<float>& values) {
  return Variable(Tensor::from(values, {static_cast<std::int64_t>(values.size())}, Device::cpu()), true);
}

void expect_new_copies(const nn::Module& model, DType dtype) {
  for (const nn::NamedParameter& parameter : model.parameters()) {
    const Tensor& copy = parameter.variable.low_precision_copy();
    const bool is_norm =
        parameter.kind == nn::ParameterKind::norm_scale || parameter.kind == nn::ParameterKind::norm_shift;
    ASSERT_EQ(copy.defined(), !is_norm) << parameter.name;
    if (is_norm) continue;
    EXPECT_EQ(copy.dtype(), dtype) << parameter.name;
    EXPECT_EQ(values_of(copy), values_of(parameter.variable.value().to(dtype))) << parameter.name;
  }
}

TEST(LowPrecisionCopies, FollowParameterUpdates) {
  TinyTraining training("sgd");
  training.net->refresh_low_precision_copies();
  for (const nn::NamedParameter& parameter : training.net->parameters())
    EXPECT_FALSE(parameter.variable.low_precision_copy().defined()) << "no copies were requested";
  for (const DType dtype : {DType::f16, DType::bf16}) {
    training.net->keep_low_precision_copies(dtype);
    expect_new_copies(*training.net, dtype);
    training.net->initialize(7);
    expect_new_copies(*training.net, dtype);
    training.step(1);
    expect_new_copies(*training.net, dtype);
  }
  EXPECT_THROW(training.net->keep_low_precision_copies(DType::f32), UsageError);
}

TEST(LowPrecisionCopies, FollowModuleTo) {
  const auto net = TinyTraining().net;
  net->keep_low_precision_copies(DType::bf16);
  net->to(Device::cpu());
  expect_new_copies(*net, DType::bf16);
  net->to(DType::f64);
  expect_new_copies(*net, DType::bf16);
}

TEST(LowPrecisionCopies, FollowLoadedParameters) {
  const testing::TempDirectory directory;
  TinyTraining saved("sgd", DType::f32, 2);
  saved.step(1);
  const auto path =
      io::CheckpointDirectory(directory.path()).save(*saved.net, *saved.optimizer, {.step = 1}, false);
  TinyTraining loaded, imported;
  for (const TinyTraining* training : {&loaded, &imported})
    training->net->keep_low_precision_copies(DType::f16);
  io::load_checkpoint(io::open_checkpoint(path), *loaded.net, loaded.optimizer.get());
  expect_new_copies(*loaded.net, DType::f16);
  EXPECT_EQ(io::parameters_hash(*loaded.net), io::parameters_hash(*saved.net));
  io::load_state_dict(*imported.net, io::state_dict(*saved.net), "test");
  expect_new_copies(*imported.net, DType::f16);
}

TEST(LowPrecisionCopies, AreNotReadInSinglePrecision) {
  TinyTraining with_copies, without;
  with_copies.net->keep_low_precision_copies(DType::bf16);
  for (const nn::NamedParameter& parameter : with_copies.net->parameters())
    if (const Tensor& copy = parameter.variable.low_precision_copy(); copy.defined())
      copy.copy_from(Tensor::full(copy.shape(), 77, copy.dtype(), copy.context()));
  for (int step = 0; step < 2; ++step) {
    with_copies.step(step);
    without.step(step);
  }
  EXPECT_EQ(io::parameters_hash(*with_copies.net), io::parameters_hash(*without.net));
}

TEST(LowPrecisionCopies, RejectInvalidTensors) {
  const Variable x = leaf({1, 2});
  const auto tensor = [](Shape shape, DType dtype) { return Tensor::zeros(shape, dtype, Device::cpu()); };
  EXPECT_THROW(x.set_low_precision_copy(tensor({2}, DType::f32)), UsageError);
  EXPECT_THROW(x.set_low_precision_copy(tensor({1, 2}, DType::f16)), UsageError);
  EXPECT_THROW((x * 2.0).set_low_precision_copy(tensor({2}, DType::f16)), UsageError);
  x.set_low_precision_copy(tensor({2}, DType::f16));
  x.set_low_precision_copy(Tensor());
  EXPECT_FALSE(x.low_precision_copy().defined());
  x.set_low_precision_copy(tensor({2}, DType::f16));
  x.set_value(tensor({3}, DType::f32));
  EXPECT_FALSE(x.low_precision_copy().defined()) << "it was a copy of the old value";
}

TEST(Cast, UsesTheCopyOfItsType) {
  const Variable x = leaf({1.0009765625f, -3});  // 1 + 2^-10: exact in f16, but not in bf16
  x.set_low_precision_copy(x.value().to(DType::f16));
  EXPECT_EQ(cast(x, DType::f16).value().view().data, x.low_precision_copy().view().data);
  EXPECT_THAT(values_of(cast(x, DType::bf16).value()), ElementsAre(1, -3));
  EXPECT_EQ(cast(x, DType::f32).value().view().data, x.value().view().data);
}

TEST(Cast, WritesTheGradientInTheLeafsType) {
  for (const bool keeps_a_copy : {false, true}) {
    SCOPED_TRACE(keeps_a_copy);
    const Variable x = leaf({1, 2});
    if (keeps_a_copy) x.set_low_precision_copy(x.value().to(DType::bf16));
    const Tensor bucket = Tensor::full({2}, 77, DType::f32, Device::cpu());
    x.set_grad_storage(bucket);
    const Tensor seed = Tensor::from(std::vector<double>{3, -5}, {2}, Device::cpu()).to(DType::bf16);
    backward(cast(x, DType::bf16), {.seed = seed});
    EXPECT_THAT(values_of(bucket), ElementsAre(3, -5)) << "written to the leaf's storage";
    backward(cast(x, DType::bf16), {.accumulate = true, .seed = seed});
    EXPECT_THAT(values_of(bucket), ElementsAre(6, -10)) << "accumulated by a second micro-batch";

    // Used twice in one graph: the leaf's gradient is overwritten first, then accumulated.
    const auto there_and_back = [&] { return cast(cast(x, DType::bf16), DType::f32); };
    backward(sum(there_and_back() * 3.0 + there_and_back() * 4.0));
    EXPECT_THAT(values_of(bucket), ElementsAre(7, 7));
  }
}

TEST(Cast, KeepsTheOnlyGradientUnconverted) {
  const Variable x = leaf({1, 2});
  x.set_low_precision_copy(x.value().to(DType::bf16));
  const auto seed = [](DType dtype) {
    return Tensor::from(std::vector<double>{3, -5}, {2}, Device::cpu()).to(dtype);
  };
  const Tensor bf16_seed = seed(DType::bf16);
  backward(cast(x, DType::bf16), {.seed = bf16_seed});
  EXPECT_EQ(x.grad().view().data, bf16_seed.view().data) << "no pass over the gradient";
  EXPECT_EQ(x.grad().dtype(), DType::bf16);

  // A second micro-batch converts the gradient before it adds its own, and leaves the first one's tensor.
  backward(cast(x, DType::bf16), {.accumulate = true, .seed = bf16_seed});
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_THAT(values_of(x.grad()), ElementsAre(6, -10));
  EXPECT_THAT(values_of(bf16_seed), ElementsAre(3, -5));

  // The next step replaces the sum, although nothing released it.
  x.consume_grad();
  backward(cast(x, DType::bf16), {.seed = bf16_seed});
  EXPECT_EQ(x.grad().dtype(), DType::bf16);
  EXPECT_THAT(values_of(x.grad()), ElementsAre(3, -5));

  // Another type than the copy's is converted.
  x.consume_grad();
  backward(cast(x, DType::f16), {.seed = seed(DType::f16)});
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_THAT(values_of(x.grad()), ElementsAre(3, -5));
}

TEST(Cast, AddsGradientsOfSeveralUsesInTheLeafsType) {
  const Variable x = leaf({1, 2});
  x.set_low_precision_copy(x.value().to(DType::bf16));
  // 1 + 2^-9 in f32; in bf16 it would be 1.
  const Variable direct = x * (1.0 / 512), halved = cast(cast(x, DType::bf16), DType::f32);
  backward(sum(halved + direct));
  EXPECT_EQ(x.grad().dtype(), DType::f32);
  EXPECT_THAT(values_of(x.grad()), ElementsAre(1 + 1.0 / 512, 1 + 1.0 / 512));
}

TEST(LowPrecisionCopies, UpdatesFromUnconvertedGradientsHaveTheSameBits) {
  for (const char* optimizer : {"sgd", "adam"}) {
    SCOPED_TRACE(optimizer);
    TinyTraining kept(optimizer), converted(optimizer);
    std::vector<Tensor> storage;
    for (const TinyTraining* training : {&kept, &converted})
      training->net->keep_low_precision_copies(DType::bf16);
    for (const nn::NamedParameter& parameter : converted.net->parameters())
      parameter.variable.set_grad_storage(
          storage.emplace_back(Tensor::zeros(parameter.variable.shape(), DType::f32, Device::cpu())));
    for (int step = 0; step < 3; ++step)
      for (const TinyTraining* training : {&kept, &converted}) training->step(step, DType::bf16);
    EXPECT_EQ(io::parameters_hash(*kept.net), io::parameters_hash(*converted.net));
  }
}

}  // namespace
}  // namespace convoy
