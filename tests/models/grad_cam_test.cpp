// Grad-CAM against PyTorch (tests/reference/grad_cam.py), and what it leaves as it was.
#include "convoy/models/grad_cam.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "convoy/engine/autograd/backward.h"
#include "convoy/models/models.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/reference.h"

namespace convoy::testing {
namespace {

using ::testing::HasSubstr;

constexpr std::int64_t kImages = 3;

models::Model by_formula(const std::string& name, std::int64_t size, DType dtype) {
  models::Model model = models::make(name, {.input = {size, size, 3}});
  fill_by_formula(model.root());
  return model.to(dtype);
}

Tensor images_for(const models::Model& model, DType dtype) {
  const Shape& image = model.input();
  return formula_values("images0", {kImages, image[0], image[1], image[2]}, dtype);
}

std::vector<int> formula_classes() {
  const auto labels = formula_labels("labels0", kImages, 10).to_vector<std::int32_t>();
  return {labels.begin(), labels.end()};
}

class GradCamParity : public ::testing::TestWithParam<DType> {};

TEST_P(GradCamParity, MapsAreThoseOfPyTorch) {
  const Reference reference("grad_cam.safetensors");
  const double tolerance = GetParam() == DType::f64 ? 1e-7 : 1e-4;  // maps are f32
  for (const auto& [name, size, layer] :
       {std::tuple("lenet", 32, "conv2"), std::tuple("resnet20", 16, "layer3.2.conv2")}) {
    const models::Model model = by_formula(name, size, GetParam());
    const Tensor images = images_for(model, GetParam());
    const models::GradCam of_labels = models::grad_cam(model, images, formula_classes());
    EXPECT_EQ(of_labels.layer, layer);
    EXPECT_EQ(of_labels.labels, formula_classes());
    EXPECT_TRUE(
        near(of_labels.maps.to(DType::f64), reference.at(std::string(name) + "/of_labels"), tolerance))
        << name;
    const models::GradCam of_prediction = models::grad_cam(model, images);
    EXPECT_TRUE(near(of_prediction.maps.to(DType::f64), reference.at(std::string(name) + "/of_prediction"),
                     tolerance))
        << name;
    EXPECT_NE(of_prediction.labels, of_labels.labels) << "the two cases test the same";
    EXPECT_TRUE(near(of_prediction.logits, model(images).value().to(DType::f64), 1e-5));
  }
}

INSTANTIATE_TEST_SUITE_P(, GradCamParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

TEST(GradCam, EnlargesMapsAsPyTorch) {
  const Tensor maps = formula_values("maps", {2, 3, 4}, DType::f32);
  const Reference reference("grad_cam.safetensors");
  EXPECT_TRUE(near(models::enlarge_maps(maps, 7, 9).to(DType::f64), reference.at("enlarged"), 1e-6));
  EXPECT_EQ(models::enlarge_maps(maps, 3, 4).to_vector<float>(), maps.to_vector<float>());
}

TEST(GradCam, ChangesNeitherGradientsNorHooks) {
  const models::Model model = by_formula("lenet", 32, DType::f32);
  const Tensor images = images_for(model, DType::f32);
  const Variable frozen = model.parameters().front().variable;
  frozen.set_requires_grad(false);
  const auto before = model(images).value().to_vector<float>();
  {
    const NoGrad no_grad;
    models::grad_cam(model, images);
    EXPECT_TRUE(NoGrad::active());
  }
  EXPECT_FALSE(frozen.requires_grad());
  for (std::size_t i = 1; i < model.parameters().size(); ++i) {
    EXPECT_TRUE(model.parameters()[i].variable.requires_grad()) << i;
    EXPECT_FALSE(model.parameters()[i].variable.has_new_grad()) << i;
  }
  for (nn::Module* const module : model.root().modules()) EXPECT_FALSE(module->has_forward_hooks());
  EXPECT_EQ(model(images).value().to_vector<float>(), before);
}

TEST(GradCam, RefusesWhatItCannotExplain) {
  const models::Model model = by_formula("lenet", 32, DType::f32);
  const Tensor images = images_for(model, DType::f32);
  const auto refusal = [](auto&& call) { return message_of<UsageError>(call); };
  EXPECT_THAT(refusal([&] {
                models::grad_cam(model, images, std::vector{1, 2});
              }),
              HasSubstr("found 2 labels, expected one for each of 3 images"));
  EXPECT_THAT(refusal([&] {
                models::grad_cam(model, images, std::vector{1, 2, 10});
              }),
              HasSubstr("found label 10, expected 0 to 9"));
  EXPECT_TRUE(model.parameters().front().variable.requires_grad()) << "after an error";
  const models::Model without("mlp", nn::Sequential({{"flat", nn::Flatten()}, {"fc", nn::Linear(12, 2)}}),
                              {2, 2, 3});
  EXPECT_THAT(refusal([&] {
                models::grad_cam(without, Tensor::zeros({1, 2, 2, 3}, DType::f32, Device::cpu()));
              }),
              HasSubstr("mlp has no Conv2d with an output of more than one pixel"));
  const models::Model list("list", nn::Linear(12, 2), {12});
  EXPECT_THAT(refusal([&] {
                models::grad_cam(list, Tensor::zeros({1, 12}, DType::f32, Device::cpu()));
              }),
              HasSubstr("list is no image classifier"));
}

}  // namespace
}  // namespace convoy::testing
