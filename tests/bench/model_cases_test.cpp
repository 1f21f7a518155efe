// Tests that the measured ops are those of engine/ops/ops.h and of the networks, with correct costs.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <regex>
#include <set>

#include "bench/kernels/op_run.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/models/models.h"
#include "tests/testing/source_tree/source_path.h"

namespace convoy::bench {
namespace {

using testing::ModelCase;

constexpr std::int64_t kImages = 2;

const DeviceContext& cpu() {
  static const DeviceContext device = DeviceContext::create_cpu({.threads = 1});
  return device;
}

/// Returns the functions of the public headers of engine/ops that return a Variable or a struct with one.
const std::vector<std::string>& op_functions() {
  static const std::vector<std::string> names = [] {
    static const std::regex kDeclaration(
        R"(^(?:Variable|CrossEntropy|BatchNormInput|std::vector<Variable>) (\w+)\(.*)");
    std::vector<std::string> found;
    std::smatch match;
    for (const auto& file : std::filesystem::directory_iterator(testing::source_path("engine/ops"))) {
      if (file.path().extension() != ".h" || file.path().filename() == "detail.h") continue;
      std::ifstream header(file.path());
      for (std::string line; std::getline(header, line);)
        if (std::regex_match(line, match, kDeclaration)) found.push_back(match[1]);
    }
    return found;
  }();
  return names;
}

/// Returns the longest function name that is a prefix of the name of the case; "" if there is none.
std::string function_of(const ModelCase& c) {
  std::string longest;
  for (const std::string& name : op_functions())
    if ((c.op.name + "_").starts_with(name + "_") && name.size() > longest.size()) longest = name;
  return longest;
}

const ModelCase& case_named(const std::vector<ModelCase>& cases, const std::string& name) {
  const auto found =
      std::find_if(cases.begin(), cases.end(), [&](const ModelCase& c) { return c.name() == name; });
  if (found == cases.end()) throw std::runtime_error("no case " + name);
  return *found;
}

TEST(ModelCases, CoverEachOpOfTheHeader) {
  const std::vector<std::string>& functions = op_functions();
  EXPECT_THAT(functions, ::testing::IsSupersetOf({"add", "conv2d", "chunk", "cross_entropy", "softmax"}));
  std::set<std::string> covered;
  for (const ModelCase& c : testing::all_model_cases({.batch = kImages})) {
    EXPECT_NE(function_of(c), "") << c.name();
    covered.insert(function_of(c));
  }
  for (const std::string& function : functions)
    EXPECT_TRUE(covered.contains(function))
        << "tests/testing/op_cases/model_cases.cpp has no case of " << function;
}

/// Returns the names of the operations that computed `y`.
std::set<std::string> recorded_names(const Variable& y) {
  std::set<std::string> names;
  if (y.is_leaf()) return names;
  names.emplace(y.creator()->name);
  for (const Variable& input : y.creator()->inputs) names.merge(recorded_names(input));
  return names;
}

TEST(ModelCases, CallTheOpsInTheirNames) {
  // Ops that wrap another op, or that do nothing.
  const std::map<std::string, std::string> recorded_as = {{"mean", "scale"},
                                                          {"cross_entropy_sum", "cross_entropy"},
                                                          {"l1_loss", "abs"},
                                                          {"smooth_l1_loss", "clamp"},
                                                          {"huber_loss", "clamp"},
                                                          {"stack", "concat"},
                                                          {"sync_batch_norm", "batch_norm"},
                                                          {"chunk", "slice"},
                                                          {"transpose", "permute"},
                                                          {"squeeze", "reshape"},
                                                          {"unsqueeze", "reshape"},
                                                          {"min", "max"},
                                                          {"variance", "sum_to"},
                                                          {"normalize", "batch_norm"}};
  for (const ModelCase& c : testing::all_model_cases({.batch = kImages})) {
    const auto other = recorded_as.find(function_of(c));
    std::string expected = other != recorded_as.end() ? other->second : function_of(c);
    if (c.op.name == "flatten_256_1px") expected = "reshape";
    if (c.op.name == "mean_64_32px") expected = "mean";  // of all elements
    if (c.op.name.starts_with("sum_") && c.op.name != "sum_64_32px") expected = "sum_to";
    EXPECT_TRUE(recorded_names(OpRun(c, cpu()).forward(1).front()).contains(expected)) << c.name();
  }
}

TEST(ModelCases, HaveUniqueNames) {
  static const std::regex kName("[a-z0-9_]+/[a-z0-9_]+");
  std::set<std::string> names;
  for (const ModelCase& c : testing::all_model_cases({.batch = kImages})) {
    EXPECT_TRUE(names.insert(c.name()).second) << c.name();
    EXPECT_TRUE(std::regex_match(c.name(), kName)) << c.name();
    EXPECT_EQ(c.arguments.size(), c.op.inputs.size()) << c.name();
  }
}

/// "conv2d [2, 32, 32, 3] (data) [64, 3, 3, 3] (parameter) -> [2, 32, 32, 64]".
std::string to_string(const Variable& result) {
  const Node& node = *result.creator();
  std::string text(node.name);
  for (const Variable& input : node.inputs)
    text += fmt::format(" {} ({})", input.shape().text(),
                        !input.requires_grad() ? "data"
                        : input.is_leaf()      ? "parameter"
                                               : "result");
  text += fmt::format(" -> {}", result.shape().text());
  return text;
}

using Recorded = std::map<std::string, int>;

/// Returns all ops in the graph of `result`.
Recorded recorded_behind(const Variable& result) {
  Recorded ops;
  std::set<const Node*> seen;
  std::vector<Variable> left = {result};
  while (!left.empty()) {
    const Variable one = left.back();
    left.pop_back();
    if (one.is_leaf() || !seen.insert(one.creator().get()).second) continue;
    ++ops[to_string(one)];
    left.insert(left.end(), one.creator()->inputs.begin(), one.creator()->inputs.end());
  }
  return ops;
}

Recorded recorded_by(const std::vector<ModelCase>& cases) {
  Recorded ops;
  for (const ModelCase& c : cases) ops[to_string(OpRun(c, cpu()).forward(1).front())] += c.count;
  return ops;
}

/// Returns the loss of a training step of `model`, as in apps/train.
Variable step_of(const models::Model& model) {
  const Shape& image = model.input();
  const Tensor images =
      testing::drawn({kImages, image[0], image[1], image[2]}, DType::f32, cpu(), "images of a step");
  const Tensor labels = Tensor::from(std::vector<std::int32_t>{3, 7}, {kImages}, cpu());
  return cross_entropy_sum(model(images, {.training = true}), labels) / static_cast<double>(kImages);
}

Recorded recorded_by(const models::Model& model) { return recorded_behind(step_of(model)); }

/// Returns the number of ops of a step with a fused ReLU according to their names. Expects that results match
/// names.
int fused_relus(const std::vector<ModelCase>& cases) {
  int count = 0;
  for (const ModelCase& c : cases) {
    const Variable result = OpRun(c, cpu()).forward(1).front();
    const std::string_view op = result.creator()->name;
    if (op != "conv2d" && op != "linear" && op != "batch_norm") continue;
    const std::vector<float> values = result.value().to_vector<float>();
    const bool is_named = c.name().find("_relu") != std::string::npos;
    EXPECT_EQ(*std::min_element(values.begin(), values.end()) >= 0, is_named) << c.name();
    if (is_named) count += c.count;
  }
  return count;
}

// The graph does not show fused ReLUs. By the definition of the networks, every layer except the last has
// one, and the batch norms of the three shortcuts of a ResNet have none.
TEST(ModelCases, FuseTheRelusOfTheirNetworks) {
  EXPECT_EQ(fused_relus(testing::lenet_cases({.batch = kImages})), 4);
  EXPECT_EQ(fused_relus(testing::resnet18_cases({.batch = kImages})), 17);
}

TEST(ModelCases, MatchTheOpsOfALeNetStep) {
  EXPECT_EQ(recorded_by(testing::lenet_cases({.batch = kImages})),
            recorded_by(models::lenet({.device = cpu()})));
}

TEST(ModelCases, MatchTheOpsOfAResNet18Step) {
  EXPECT_EQ(recorded_by(testing::resnet18_cases({.batch = kImages})),
            recorded_by(models::resnet18({.device = cpu()})));
}

/// Returns the FLOPs of the convolutions and linear layers in the forward pass of one image, by the cases.
std::int64_t gemm_flops(const std::vector<ModelCase>& cases, std::int64_t batch) {
  std::int64_t flops = 0;
  for (const ModelCase& c : cases)
    if (const std::string function = function_of(c); function == "conv2d" || function == "linear")
      flops += c.count * c.cost.forward.flops / batch;
  return flops;
}

void expect_cost_of_step(const std::vector<ModelCase>& cases, const models::Model& model) {
  OpCost total;
  for (const ModelCase& c : cases)
    for (int i = 0; i < c.count; ++i) {
      total.forward += c.cost.forward;
      total.backward += c.cost.backward;
    }
  const OpCost step = recorded_cost(step_of(model));
  EXPECT_EQ(total.forward, step.forward);
  EXPECT_EQ(total.backward, step.backward);
}

TEST(ModelCases, AddUpToTheCostOfAStep) {
  expect_cost_of_step(testing::lenet_cases({.batch = kImages}), models::lenet({.device = cpu()}));
  expect_cost_of_step(testing::resnet18_cases({.batch = kImages}), models::resnet18({.device = cpu()}));
  EXPECT_NEAR(static_cast<double>(gemm_flops(testing::resnet18_cases({}), 128)), 1.11e9, 0.005e9);
}

TEST(ModelCases, AddUpToTheFlopsOfTheSpeedRecipe) {
  // Computed by hand with 2 FLOPs per multiply-add: 2x2 whitening, six convolutions, the head.
  const std::int64_t forward =
      2 * (31 * 31 * 24 * 4 * 3 + 31 * 31 * 64 * 9 * 24 + 15 * 15 * 64 * 9 * 64 + 15 * 15 * 256 * 9 * 64 +
           2 * 7 * 7 * 256 * 9 * 256 + 3 * 3 * 256 * 9 * 256 + 256 * 10);
  EXPECT_EQ(gemm_flops(testing::speed_recipe_cases({}), 128), forward);
  EXPECT_NEAR(static_cast<double>(forward), 236e6, 1e6);
  // 1.97 million parameters; the scales of its six batch norms are fixed.
  std::int64_t parameters = 0, trained = 0;
  for (const ModelCase& c : testing::speed_recipe_cases({}))
    for (std::size_t i = 0; i < c.arguments.size(); ++i)
      if (c.arguments[i].is_parameter) {
        parameters += c.count * c.op.inputs[i].numel();
        if (c.arguments[i].wants_gradient) trained += c.count * c.op.inputs[i].numel();
      }
  EXPECT_NEAR(static_cast<double>(parameters), 1.97e6, 0.005e6);
  EXPECT_EQ(parameters - trained, 24 * 2 * 2 * 3 + 2 * 64 + 4 * 256);
}

void expect_cost(const Cost& found, std::int64_t flops, std::int64_t bytes) {
  EXPECT_EQ(found.flops, flops);
  EXPECT_EQ(found.bytes, bytes);
}

TEST(ModelCases, CountAConvolution) {
  const std::vector<ModelCase> cases = testing::resnet18_cases({});
  const std::int64_t map = 128 * 32 * 32 * 64;  // elements of x, and of y
  const std::int64_t product = 2 * map * 9 * 64;
  const std::int64_t bytes = (2 * map + 64 * 9 * 64) * 4;
  const ModelCase& c = case_named(cases, "resnet18/conv2d_3x3_64x64_32px");
  EXPECT_EQ(c.count, 4);
  expect_cost(c.cost.forward, product, bytes);
  expect_cost(c.cost.backward, 2 * product, 2 * bytes);
  // Images have no gradient, so backward computes only that of the filter.
  const ModelCase& stem = case_named(cases, "resnet18/conv2d_3x3_3x64_32px");
  expect_cost(stem.cost.backward, 2 * map * 27, (128 * 32 * 32 * 3 + map + 64 * 27) * 4);
  // Half precision has half the bytes.
  const std::vector<ModelCase> halves = testing::resnet18_cases({.dtype = DType::bf16});
  expect_cost(case_named(halves, "resnet18/conv2d_3x3_64x64_32px").cost.forward, product, bytes / 2);
}

TEST(ModelCases, CountBiasAndReluOfALinearLayer) {
  // 3 images of 84 features to 10, without a ReLU, and of 120 to 84 with one.
  const std::vector<ModelCase> cases = testing::lenet_cases({.batch = 3});
  const ModelCase& plain = case_named(cases, "lenet/linear_84x10_bias");
  expect_cost(plain.cost.forward, 2 * 3 * 84 * 10, 4 * (3 * 84 + 84 * 10 + 3 * 10));
  expect_cost(plain.cost.backward, 2 * 2 * 3 * 84 * 10, 4 * (2 * (3 * 84 + 84 * 10 + 3 * 10) + 3 * 10));
  const ModelCase& relu = case_named(cases, "lenet/linear_120x84_bias_relu");
  expect_cost(relu.cost.backward, 2 * 2 * 3 * 120 * 84, 4 * (2 * (3 * 120 + 120 * 84 + 3 * 84) + 4 * 3 * 84));
}

TEST(ModelCases, CountPassesOverFeatureMaps) {
  const std::vector<ModelCase> resnet18 = testing::resnet18_cases({.batch = 1});
  const std::int64_t map = 32 * 32 * 64;
  const ModelCase& norm = case_named(resnet18, "resnet18/batch_norm_64_32px_residual_relu");
  expect_cost(norm.cost.forward, 9 * map, 4 * map * 4);  // x twice, the residual, y
  // dy, x and y, and the residual's gradient; this, x, and dx.
  expect_cost(norm.cost.backward, 13 * map, 7 * map * 4);
  const ModelCase& relu = case_named(resnet18, "resnet18/batch_norm_64_32px_relu");
  expect_cost(relu.cost.backward, 13 * map, 5 * map * 4);  // dy and x twice; dx
  const ModelCase& plain = case_named(resnet18, "resnet18/batch_norm_128_16px");
  expect_cost(plain.cost.backward, 11 * map / 2, 5 * map / 2 * 4);  // dy and x twice; dx
  const ModelCase& loss = case_named(resnet18, "resnet18/cross_entropy_sum_10");
  // The label, and whether it is correct; the loss twice, the largest logit and the logarithm of the sum.
  expect_cost(loss.cost.forward, 40, 10 * 4 + 2 * 4 + 4 * 4);
  expect_cost(loss.cost.backward, 40, 2 * 10 * 4 + 4 + 2 * 4);

  const std::vector<ModelCase> lenet = testing::lenet_cases({.batch = 1});
  const ModelCase& pool = case_named(lenet, "lenet/max_pool2d_2x2_6_28px");
  expect_cost(pool.cost.forward, 28 * 28 * 6, (28 * 28 + 14 * 14) * 6 * 4 + 14 * 14 * 6);  // taps have 1 byte
  const std::vector<ModelCase> halves = testing::lenet_cases({.batch = 1, .dtype = DType::f16});
  expect_cost(case_named(halves, "lenet/max_pool2d_2x2_6_28px").cost.backward, 28 * 28 * 6,
              (28 * 28 * 2 + 14 * 14 * (2 + 1)) * 6);

  const std::vector<ModelCase> others = testing::other_op_cases({.batch = 1});
  expect_cost(case_named(others, "ops/add_32x32x64").cost.backward, 0, 0);  // dy itself is both gradients
  expect_cost(case_named(others, "ops/cast_to_bf16_64_32px").cost.forward, 0, map * 6);
}

/// Runs both directions with several graphs at a time, as the benchmark does.
void run_both_ways(const std::vector<ModelCase>& cases, const DeviceContext& device) {
  for (const ModelCase& c : cases) {
    SCOPED_TRACE(c.name());
    const OpRun run(c, device);
    EXPECT_GT(run.forward_seconds(2), 0);
    const std::vector<Variable> results = run.forward(1);
    const std::vector<Variable> inputs = results[0].creator()->inputs;
    EXPECT_GT(run.backward_seconds(2), 0);
    for (const double value : results[0].value().to(DType::f64).to_vector<double>())
      ASSERT_TRUE(std::isfinite(value));
    for (const Variable& input : inputs)
      EXPECT_EQ(input.has_new_grad(), input.is_leaf() && input.requires_grad()) << input.shape().text();
  }
}

TEST(OpRun, RunsEachCaseOnTheCpu) { run_both_ways(testing::all_model_cases({.batch = kImages}), cpu()); }

TEST(OpRun, RunsInDoublePrecision) {
  run_both_ways(testing::lenet_cases({.batch = kImages, .dtype = DType::f64}), cpu());
}

TEST(OpRun, RunsOnAGpu) {
  if (cuda_availability().count == 0) GTEST_SKIP() << "needs a GPU: " << cuda_availability().reason;
  const DeviceContext gpu = DeviceContext::create_cuda(0);
  for (const DType dtype : {DType::f32, DType::bf16}) {
    SCOPED_TRACE(to_string(dtype));
    run_both_ways(testing::lenet_cases({.batch = kImages, .dtype = dtype}), gpu);
    // Ops of other networks that LeNet does not have, at sizes that are feasible on an emulator.
    std::vector<ModelCase> more;
    for (const auto& network : {testing::resnet18_cases, testing::speed_recipe_cases})
      for (ModelCase& c : network({.batch = kImages, .dtype = dtype}))
        if (c.op.inputs[0].numel() <= kImages * 7 * 7 * 256 && c.cost.forward.flops < 1'000'000)
          more.push_back(std::move(c));
    EXPECT_GT(more.size(), 10U);
    run_both_ways(more, gpu);
  }
}

TEST(OpRun, StartsFromAGradientOfOnes) {
  const std::vector<ModelCase> cases = testing::lenet_cases({.batch = kImages});
  const OpRun run(case_named(cases, "lenet/linear_84x10_bias"), cpu());
  const Variable y = run.forward(1).front();
  const Variable bias = y.creator()->inputs[2];
  run.backward_seconds(3);  // overwritten each time, not accumulated
  EXPECT_THAT(bias.grad().to_vector<float>(), ::testing::Each(static_cast<float>(kImages)));
}

}  // namespace
}  // namespace convoy::bench
