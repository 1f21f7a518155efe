// Comparison of whole networks with PyTorch (tests/reference/networks.py): training runs from the same
// weights on the same batches, and the ResNets of torchvision. Of the speedrun networks
// (tests/reference/speedrun.py): one training step, inference with the running statistics after it, and
// whitening filters.
#include <gtest/gtest.h>
#include <algorithm>
#include <cmath>

#include "convoy/apps/examples/vision_transformer.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/optimizer.h"
#include "convoy/models/models.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

constexpr int kNetworkSteps = 20;
constexpr int kBatches = 4;  // repeated in a cycle, so that the losses decrease

const Reference& reference() {
  static const Reference stored("models.safetensors");
  return stored;
}

Tensor images_of(int step, std::int64_t count, const Shape& input, DType dtype) {
  return formula_values("images" + std::to_string(step % kBatches), {count, input[0], input[1], input[2]},
                        dtype);
}

// Computes the gradients of the mean loss of the step's batch, and returns the loss.
double loss_and_gradients(const models::Model& model, int step, std::int64_t count) {
  const DType dtype = model.parameters().front().variable.dtype();
  const Tensor labels = formula_labels("labels" + std::to_string(step % kBatches), count, model.classes());
  const Variable logits = model(images_of(step, count, model.input(), dtype), {.training = true});
  const Variable loss = cross_entropy_sum(logits, labels) / static_cast<double>(count);
  backward(loss);
  return loss.value().item();
}

double gradient_norm(const models::Model& model) {
  double squares = 0;
  for (const nn::NamedParameter& parameter : model.parameters()) {
    for (const double g : parameter.variable.grad().to(DType::f64).to_vector<double>()) squares += g * g;
  }
  return std::sqrt(squares);
}

class LeNetParity : public ::testing::TestWithParam<DType> {};

TEST_P(LeNetParity, TwentyLosses) {
  // Without batch norm, training hardly amplifies rounding errors: the f32 and f64 losses of PyTorch differ
  // by at most 2e-7.
  const bool is_f64 = GetParam() == DType::f64;
  const double tolerance = is_f64 ? 1e-12 : 1e-5;
  const auto expected = reference().at(is_f64 ? "lenet/losses_f64" : "lenet/losses_f32").to_vector<double>();
  const models::Model model = models::lenet().to(GetParam());
  fill_by_formula(model.root());
  optim::Sgd optimizer(model.parameters(), {.momentum = 0.9});
  for (int step = 0; step < kNetworkSteps; ++step) {
    const double stored = expected[static_cast<std::size_t>(step)];
    EXPECT_NEAR(loss_and_gradients(model, step, 32), stored, tolerance * stored) << "step " << step;
    optimizer.step(0.05);
  }
}

INSTANTIATE_TEST_SUITE_P(, LeNetParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

// Batch norm amplifies rounding errors, so f32 training runs diverge after a few steps, even two runs of
// PyTorch. In f64 the whole training runs are equal. One f32 step from each f64 state, rounded to f32, is
// also equal.
TEST(ResNet20Parity, TwentyLossesInF64AndEachStepInF32) {
  const auto losses = reference().at("resnet20/losses_f64").to_vector<double>();
  const auto losses_f32 = reference().at("resnet20/losses_f32").to_vector<double>();
  const auto norms_f32 = reference().at("resnet20/gradient_norms_f32").to_vector<double>();
  constexpr std::int64_t kCount = 16;
  const models::Options options{.input = {16, 16, 3}};
  const models::Model model = models::resnet20(options).to(DType::f64);
  const models::Model single = models::resnet20(options);
  fill_by_formula(model.root());
  const std::vector<nn::NamedParameter> parameters = model.parameters(),
                                        single_parameters = single.parameters();
  optim::Sgd optimizer(parameters, {.momentum = 0.9, .nesterov = true, .weight_decay = 5e-4});

  for (int step = 0; step < kNetworkSteps; ++step) {
    const auto i = static_cast<std::size_t>(step);
    for (std::size_t p = 0; p < parameters.size(); ++p) {
      single_parameters[p].variable.set_value(parameters[p].variable.value().to(DType::f32));
    }
    EXPECT_NEAR(loss_and_gradients(single, step, kCount), losses_f32[i], 1e-5 * losses_f32[i])
        << "step " << step;
    // Winograd convolutions have rounding errors several times those of PyTorch, which change the sign of the
    // input of some ReLUs.
    EXPECT_NEAR(gradient_norm(single), norms_f32[i], 2e-4 * norms_f32[i]) << "step " << step;

    EXPECT_NEAR(loss_and_gradients(model, step, kCount), losses[i], 1e-9 * losses[i]) << "step " << step;
    optimizer.step(0.02);
  }
  // Inference with the running statistics of the training run.
  const Tensor logits = model(images_of(0, kCount, model.input(), DType::f64)).value();
  EXPECT_TRUE(near(logits, reference().at("resnet20/final_logits_f64"), 1e-9));
}

// Compares the logits in inference, with running statistics that differ from the initial ones.
void expect_logits(const models::Model& model, const std::string& name) {
  fill_by_formula(model.root());
  const NoGrad no_grad;
  const Tensor logits = model(images_of(0, 2, model.input(), DType::f32)).value();
  EXPECT_TRUE(near(logits, reference().at(name), 1e-4)) << name;
}

TEST(TorchvisionParity, ResNet18WithTheCifarStem) {
  expect_logits(models::resnet18({.input = {32, 32, 3}}), "resnet18_cifar/logits");
}

TEST(TorchvisionParity, ResNet50WithTheImageNetStem) {
  expect_logits(models::resnet50({.input = {64, 64, 3}, .stem = models::Stem::imagenet}),
                "resnet50_imagenet/logits");
}

/// Returns the hash of all names and PyTorch's shapes, as hash_of_names() of tests/reference/torchvision_models.py.
std::vector<double> hash_of_names(const nn::Module& network) {
  std::vector<std::string> lines;
  for (const io::NamedTensor& each : io::state_dict(network)) {
    lines.push_back(each.name + " ");
    for (const std::int64_t size : each.tensor.shape().sizes()) lines.back() += std::to_string(size) + " ";
    lines.back().back() = '\n';
  }
  std::sort(lines.begin(), lines.end());
  std::uint64_t hash = 0xCBF29CE484222325u;
  for (const std::string& line : lines)
    for (const char c : line) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3u;
  std::vector<double> bytes;
  for (int i = 0; i < 8; ++i) bytes.push_back(static_cast<double>(hash >> (8 * i) & 0xFF));
  return bytes;
}

class TorchvisionModels : public ::testing::TestWithParam<std::pair<const char*, std::int64_t>> {};

TEST_P(TorchvisionModels, HaveTheNamesAndTheLogits) {
  static const Reference stored("torchvision_models.safetensors");
  const auto [name, side] = GetParam();
  const models::Model model = models::make(
      name, {.input = {side, side, 3},
             .stem = name == std::string("resnet101") ? models::Stem::imagenet : models::Stem::automatic});
  EXPECT_EQ(hash_of_names(model), stored.at(std::string(name) + "/names").to_vector<double>());
  fill_by_formula(model.root());
  const NoGrad no_grad;
  // 100 layers amplify rounding errors of 6e-8 by less than 1e3.
  EXPECT_TRUE(near(model(images_of(0, 2, model.input(), DType::f32)).value(),
                   stored.at(std::string(name) + "/logits"), 1e-4));
}

INSTANTIATE_TEST_SUITE_P(, TorchvisionModels,
                         ::testing::Values(std::pair("vgg11", 64), std::pair("resnet101", 64),
                                           std::pair("mobilenet_v3_small", 64),
                                           std::pair("convnext_tiny", 64), std::pair("vit_tiny", 48)),
                         [](const auto& each) { return each.param.first; });

const Reference& speedrun_reference() {
  static const Reference stored("speedrun.safetensors");
  return stored;
}

double norm_of(const Tensor& tensor) {
  double squares = 0;
  for (const double value : tensor.to(DType::f64).to_vector<double>()) squares += value * value;
  return std::sqrt(squares);
}

// Compares a training step on `count` images with that of the network `name`. `tolerance` is relative to the maximum of
// each tensor.
void expect_step(const models::Model& model, const std::string& name, std::int64_t count, double tolerance) {
  const DType dtype = model.parameters().front().variable.dtype();
  fill_by_formula(model.root());
  const Tensor images = formula_values("images0", {count, 32, 32, 3}, dtype);
  const Variable logits = model(images, {.training = true});
  EXPECT_TRUE(near(logits.value(), speedrun_reference().at(name + "/logits"), tolerance)) << name;
  const Variable loss = cross_entropy_sum(logits, formula_labels("labels0", count, 10), /*smoothing=*/0.2);
  EXPECT_TRUE(near(loss.value(), speedrun_reference().at(name + "/loss"), tolerance)) << name;
  backward(loss);

  for (const nn::NamedParameter& parameter : model.parameters()) {
    const Tensor& gradient = parameter.variable.grad();
    ASSERT_TRUE(gradient.defined()) << parameter.name;
    const double expected = speedrun_reference().at(name + "/norm/" + parameter.name).item();
    EXPECT_NEAR(norm_of(gradient), expected, tolerance * expected) << name << ": " << parameter.name;
    for (const char* whole : {"whiten.bias", "layers.1.norm1.bias", "layers.3.norm2.bias", "head.weight"})
      if (parameter.name == whole) {
        EXPECT_TRUE(near(gradient, speedrun_reference().at(name + "/gradient/" + whole), tolerance))
            << name << ": " << whole;
      }
  }
  for (const nn::NamedBuffer& buffer : model.buffers()) {
    const std::string prefix = "layers.3.norm2.running_";
    if (buffer.name.starts_with(prefix)) {
      EXPECT_TRUE(near(buffer.tensor,
                       speedrun_reference().at(name + "/" + buffer.name.substr(prefix.size() - 8)),
                       tolerance))
          << name << ": " << buffer.name;
    }
  }
  const NoGrad no_grad;
  EXPECT_TRUE(near(model(images).value(), speedrun_reference().at(name + "/inference"), tolerance)) << name;
}

// In f64, seven layers with sums of at most 4,608 terms and batch norms amplify rounding errors of 1e-16
// by less than 1e5; in f32, those of 6e-8 by less than 2e3 for the smaller network.
TEST(SpeedrunParity, OneStepInF64) {
  models::Model small = models::speedrun_small(), large = models::speedrun_96();
  expect_step(small.to(DType::f64), "speedrun-small", 8, 1e-11);
  expect_step(large.to(DType::f64), "speedrun-96", 2, 1e-11);
}

TEST(SpeedrunParity, OneStepInF32) { expect_step(models::speedrun_small(), "speedrun-small", 8, 1e-4); }

TEST(SpeedrunParity, OneStepWithSiLU) {
  const models::Options options{.activation = nn::ActivationKind::silu};
  models::Model small = models::speedrun_small(options), large = models::speedrun_96(options);
  expect_step(small, "speedrun-small/silu", 8, 1e-4);
  expect_step(small.to(DType::f64), "speedrun-small/silu", 8, 1e-11);
  expect_step(large.to(DType::f64), "speedrun-96/silu", 2, 1e-11);
}

// Compares the sum of w w^T over the filters w, which depends neither on their order nor on their signs.
TEST(SpeedrunParity, WhiteningFilters) {
  const std::int64_t count = 16, side = 32, channels = 3;
  const auto pixels =
      formula_values("images0", {count, side, side, channels}, DType::f64).to_vector<double>();
  std::vector<double> mixed(pixels.size());
  for (std::int64_t row = 0; row < count * side; ++row)
    for (std::int64_t x = 0; x < side; ++x)
      for (std::int64_t c = 0; c < channels; ++c) {
        const auto at = [&](std::int64_t column) {
          return static_cast<std::size_t>((row * side + column) * channels + c);
        };
        mixed[at(x)] = pixels[at(x)] + 0.5 * pixels[at((x + side - 1) % side)];
      }
  models::Model model = models::speedrun_small();
  model.to(DType::f64);
  models::whiten(model, Tensor::from(mixed, {count, side, side, channels}, Device::cpu()));
  const std::vector<double> filters = model.buffers().front().tensor.to_vector<double>();
  ASSERT_EQ(filters.size(), 24u * 12);
  std::vector<double> sums(12 * 12);
  for (std::size_t filter = 0; filter < 24; ++filter)
    for (std::size_t i = 0; i < 12; ++i)
      for (std::size_t j = 0; j < 12; ++j)
        sums[12 * i + j] += filters[12 * filter + i] * filters[12 * filter + j];
  // Images are rounded to f32, which changes the moments by a factor of 1 + 2^-23. The eigenvalues are
  // 0.25 to 0.58, so their reciprocals magnify a change by less than 4.
  EXPECT_TRUE(
      near(Tensor::from(sums, {12, 12}, Device::cpu()), speedrun_reference().at("whitening"), 4 * 0x1p-23));
}

}  // namespace

// Comparison of the vision transformer of apps/examples with PyTorch (tests/reference/vision_transformer.py):
// losses of a training with AdamW, from the same weights on the same batches.

namespace {

models::Model make_model(const DeviceContext& device = Device::cpu()) {
  const examples::VisionTransformerOptions options{.input = {16, 16, 3}, .width = 32, .depth = 3};
  return {"vit", std::make_shared<examples::VisionTransformer>(options), options.input, 1, device};
}

class VisionTransformerParity : public ::testing::TestWithParam<DType> {};

TEST_P(VisionTransformerParity, TwentyLosses) {
  // The f32 and f64 losses of PyTorch differ by at most 6e-7.
  const bool is_f64 = GetParam() == DType::f64;
  const double tolerance = is_f64 ? 1e-11 : 1e-5;
  const auto expected = Reference("vision_transformer.safetensors")
                            .at(is_f64 ? "losses_f64" : "losses_f32")
                            .to_vector<double>();
  const models::Model model = make_model().to(GetParam());
  fill_by_formula(model.root());
  optim::Adam optimizer(optim::decay_groups(model.parameters(), 0.05, /*decay_all=*/true),
                        {.decoupled = true});
  for (int step = 0; step < 20; ++step) {
    const std::string batch = std::to_string(step % 4);
    const Tensor images = formula_values("images" + batch, {16, 16, 16, 3}, GetParam());
    const Variable loss = cross_entropy_sum(model(images), formula_labels("labels" + batch, 16, 10)) / 16.0;
    backward(loss);
    optimizer.step(1e-3);
    const double stored = expected[static_cast<std::size_t>(step)];
    EXPECT_NEAR(loss.value().item(), stored, tolerance * stored) << "step " << step;
  }
}

INSTANTIATE_TEST_SUITE_P(, VisionTransformerParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(VisionTransformer, HasTheParametersOfPyTorch) {
  std::vector<std::string> names;
  for (const nn::NamedParameter& each : make_model().parameters())
    if (each.name.starts_with("layers.0.") || !each.name.starts_with("layers.")) names.push_back(each.name);
  EXPECT_EQ(names, (std::vector<std::string>{
                       "positions", "patches.weight", "patches.bias", "norm.weight", "norm.bias",
                       "head.weight", "head.bias", "layers.0.self_attn.in_proj_weight",
                       "layers.0.self_attn.in_proj_bias", "layers.0.self_attn.out_proj.weight",
                       "layers.0.self_attn.out_proj.bias", "layers.0.linear1.weight", "layers.0.linear1.bias",
                       "layers.0.linear2.weight", "layers.0.linear2.bias", "layers.0.norm1.weight",
                       "layers.0.norm1.bias", "layers.0.norm2.weight", "layers.0.norm2.bias"}));
}

}  // namespace

}  // namespace convoy::testing
