// Comparison of the vision transformer of apps/examples with PyTorch (tests/reference/vision_transformer.py):
// losses of a training with AdamW, from the same weights on the same batches.
#include <gtest/gtest.h>

#include "convoy/apps/examples/vision_transformer.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
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
