// Tests that batch norms fused into convolutions (ForwardContext::fuse_batch_norms) give the bits of separate
// layers and keep less memory, and of where they are not fused.
#include "tests/models/fused_batch_norm.h"

#include <gmock/gmock.h>

#include "convoy/kernels/base/check.h"

namespace convoy::testing {
namespace {

class FusedBatchNorm : public ::testing::Test {
 protected:
  const DeviceContext cpu = DeviceContext::create_cpu({.threads = 1});
};

constexpr std::int64_t kBatch = 4, kSide = 8;
const Shape kImages{kBatch, kSide, kSide, 3};

TEST_F(FusedBatchNorm, BlocksTrainBitForBitAsSeparateLayers) {
  const auto net = two_blocks();
  for (const DType dtype : {DType::f32, DType::bf16, DType::f64}) {
    SCOPED_TRACE(to_string(dtype));
    const Steps separate = train(*net, kImages, dtype, cpu, false);
    const Steps fused = train(*net, kImages, dtype, cpu, true);
    expect_equal(fused, separate);
    EXPECT_EQ(separate.ops.count("norm_conv2d"), 0u);
    EXPECT_EQ(separate.ops.at("batch_norm"), 7);
    EXPECT_EQ(fused.ops.at("conv2d_statistics"), 4);  // the first one of each chain
    EXPECT_EQ(fused.ops.at("norm_conv2d"), 3);
    EXPECT_EQ(fused.ops.at("batch_norm"), 4);  // the last one of each chain
    EXPECT_EQ(fused.ops.count("conv2d"), 0u);
  }
}

TEST_F(FusedBatchNorm, ResNet20TrainsBitForBitAndKeepsNoNormalizedValues) {
  const models::Model model = models::resnet20({.input = {kSide, kSide, 3}, .device = cpu});
  const Steps separate = train(model.root(), kImages, DType::f32, cpu, false);
  const Steps fused = train(model.root(), kImages, DType::f32, cpu, true);
  expect_equal(fused, separate);
  EXPECT_EQ(fused.ops.at("norm_conv2d"), 9);  // one per block
  // Three blocks each have a result of the first batch norm with 16, 32 and 64 channels.
  std::size_t normalized = 0;
  for (const std::size_t group : {0u, 1u, 2u})
    normalized += 3 * sizeof(float) * (kBatch * (kSide >> group) * (kSide >> group) * (16u << group));
  EXPECT_EQ(separate.saved - fused.saved, normalized);
  EXPECT_LT(fused.peak, separate.peak);
}

TEST_F(FusedBatchNorm, EvaluationIsNotFused) {
  const auto net = two_blocks();
  net->initialize(1);
  net->to(cpu);
  const Variable x(images(kImages, DType::f32, cpu));
  const Variable y = (*net)(x, {.fuse_batch_norms = true});
  EXPECT_EQ(y.value().to_vector<float>(), (*net)(x).value().to_vector<float>());
  EXPECT_EQ(recorded_ops(y).count("norm_conv2d"), 0u);
}

/// Returns the ops that a chain of two convolutions with batch norms records.
std::map<std::string, int> ops_of(const Layers& layers, const DeviceContext& device) {
  nn::Sequential net(layers);
  net.initialize(1);
  return recorded_ops(
      net(Variable(images(kImages, DType::f32, device)), {.training = true, .fuse_batch_norms = true}));
}

TEST_F(FusedBatchNorm, OtherLayersBetweenAreNotFused) {
  using Ops = std::map<std::string, int>;
  const auto pool = std::make_shared<nn::AvgPool2d>(Pool2dOptions{});
  EXPECT_EQ(
      ops_of({{"0", conv(3, 4, 3)}, {"1", norm(4)}, {"2", relu()}, {"3", conv(4, 4, 3)}, {"4", norm(4)}},
             cpu),
      (Ops{{"conv2d_statistics", 1}, {"norm_conv2d", 1}, {"batch_norm", 1}}));
  // Without a ReLU, or with another layer, the batch norm runs by itself.
  EXPECT_EQ(ops_of({{"0", conv(3, 4, 3)}, {"1", norm(4)}, {"3", conv(4, 4, 3)}, {"4", norm(4)}}, cpu),
            (Ops{{"conv2d_statistics", 2}, {"batch_norm", 2}}));
  EXPECT_EQ(ops_of({{"0", conv(3, 4, 3)},
                    {"1", norm(4)},
                    {"2", relu()},
                    {"pool", pool},
                    {"3", conv(4, 4, 3)},
                    {"4", norm(4)}},
                   cpu),
            (Ops{{"conv2d_statistics", 2}, {"batch_norm", 2}, {"avg_pool2d", 1}}));
  // A convolution with a bias, or with no batch norm after it.
  EXPECT_EQ(ops_of({{"0", conv(3, 4, 3, 1, true)},
                    {"1", norm(4)},
                    {"2", relu()},
                    {"3", conv(4, 4, 3)},
                    {"4", norm(4)}},
                   cpu),
            (Ops{{"conv2d", 1}, {"batch_norm", 2}, {"conv2d_statistics", 1}}));
  EXPECT_EQ(ops_of({{"0", conv(3, 4, 3)}, {"1", norm(4)}, {"2", relu()}, {"3", conv(4, 4, 3)}}, cpu),
            (Ops{{"conv2d_statistics", 1}, {"batch_norm", 1}, {"conv2d", 1}}));
}

/// A group of one rank.
class SingleRank final : public ProcessGroup {
 public:
  int size() const override { return 1; }
  void all_gather(const Tensor& local, const Tensor& gathered) override {
    gathered.slice(0, {local.numel()}).copy_from(local);
  }
  void all_reduce(const Tensor&) override {}
};

TEST_F(FusedBatchNorm, HooksAndProcessGroupsPreventTheFusion) {
  const auto conv1 = conv(3, 4, 3), conv2 = conv(4, 4, 3);
  const auto bn1 = norm(4), bn2 = norm(4);
  const auto relu1 = relu();
  nn::Sequential net({{"0", conv1}, {"1", bn1}, {"2", relu1}, {"3", conv2}, {"4", bn2}});
  net.initialize(1);
  const Variable x(images(kImages, DType::f32, cpu));
  const auto run = [&](bool fuse) { return net(x, {.training = true, .fuse_batch_norms = fuse}); };
  const std::vector<float> expected = run(false).value().to_vector<float>();
  const auto fused_norms = [&] {
    const Variable y = run(true);
    EXPECT_EQ(y.value().to_vector<float>(), expected);
    return recorded_ops(y)["norm_conv2d"];
  };
  EXPECT_EQ(fused_norms(), 1);
  for (const std::shared_ptr<nn::Module>& layer :
       std::initializer_list<std::shared_ptr<nn::Module>>{conv1, bn1, relu1, conv2, bn2}) {
    int calls = 0;
    const nn::HookHandle hook = layer->add_forward_hook([&](const nn::Module&, auto, auto outputs) {
      ++calls;
      EXPECT_EQ(outputs[0].shape(), (Shape{kBatch, kSide, kSide, 4}));
    });
    EXPECT_EQ(fused_norms(), 0);
    EXPECT_EQ(calls, 1);
  }
  bn2->synchronize(std::make_shared<SingleRank>());
  EXPECT_EQ(recorded_ops(run(true))["norm_conv2d"], 0);
  bn2->synchronize(nullptr);
  EXPECT_EQ(fused_norms(), 1);
}

TEST_F(FusedBatchNorm, RowsAreThoseOfSeparateLayers) {
  const auto net = two_blocks();
  net->initialize(1);
  const auto rows_of = [&](bool fuse) {
    std::vector<nn::LayerSummary> rows;
    (*net)(Variable(images(kImages, DType::f32, cpu), /*requires_grad=*/true),
           {.training = true, .rows = &rows, .fuse_batch_norms = fuse});
    return rows;
  };
  const std::vector<nn::LayerSummary> separate = rows_of(false), fused = rows_of(true);
  ASSERT_EQ(fused.size(), separate.size());
  std::int64_t flops[2] = {};
  std::map<std::string, std::string> types;
  for (std::size_t i = 0; i < fused.size(); ++i) {
    EXPECT_EQ(fused[i].name, separate[i].name);
    EXPECT_EQ(fused[i].outputs, separate[i].outputs);
    EXPECT_EQ(fused[i].parameters, separate[i].parameters);
    flops[0] += separate[i].flops;
    flops[1] += fused[i].flops;
    types[fused[i].name] = fused[i].type;
  }
  EXPECT_EQ(flops[1], flops[0]);
  EXPECT_EQ(types["bottleneck.bn1"], "BatchNorm2d 8, fused into conv2");
  EXPECT_EQ(types["bottleneck.relu1"], "ReLU, fused into conv2");
  EXPECT_EQ(types["bottleneck.bn3"], "BatchNorm2d 32 + residual + ReLU");
  EXPECT_EQ(types["bn"], "BatchNorm2d 16 + ReLU");
  EXPECT_EQ(types["relu"], "ReLU, fused into bn");
}

TEST_F(FusedBatchNorm, ErrorsNameTheLayer) {
  const auto net = two_blocks();
  const nn::ForwardContext context{.training = true, .fuse_batch_norms = true};
  try {
    (*net)(Variable(images({2, 4, 4, 5}, DType::f32, cpu)), context);
    FAIL() << "no error";
  } catch (const UsageError& error) {
    EXPECT_THAT(error.what(),
                ::testing::HasSubstr("conv (Conv2d 3 -> 16, 3x3 padding 1): input [2, 4, 4, 5]"));
  }
}

}  // namespace
}  // namespace convoy::testing
