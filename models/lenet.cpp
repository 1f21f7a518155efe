#include "convoy/models/models.h"

#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"

namespace convoy::models {

Model lenet(const Options& options) {
  check(options.stem == Stem::automatic,
        "lenet: found a stem, but this model has none; leave the stem at automatic");
  check(!options.activation, "lenet: found an activation, but this model has no choice; leave it unset");
  const auto relu = [] { return std::make_shared<nn::Activation>(nn::ActivationKind::relu); };
  const auto pool = [] { return std::make_shared<nn::MaxPool2d>(Pool2dOptions{.kernel = 2, .stride = 2}); };
  const auto linear = [](std::int64_t in, int out) {
    return std::make_shared<nn::Linear>(static_cast<int>(in), out);
  };
  const Shape& input = options.input;
  check(input.rank() == 3, "lenet: found an input of shape {}, expected [H, W, C]", input.text());

  std::vector<nn::Sequential::Named> layers{
      {"conv1",
       std::make_shared<nn::Conv2d>(static_cast<int>(input[2]), 6, nn::Conv2dLayerOptions{.kernel = 5})},
      {"relu1", relu()},
      {"pool1", pool()},
      {"conv2", std::make_shared<nn::Conv2d>(6, 16, nn::Conv2dLayerOptions{.kernel = 5})},
      {"relu2", relu()},
      {"pool2", pool()},
      {"flatten", std::make_shared<nn::Flatten>()},
  };
  const Shape features = nn::Sequential(layers).infer({1, input[0], input[1], input[2]}).shape();
  layers.insert(layers.end(), {
                                  {"fc1", linear(features[1], 120)},  // 16 x 5 x 5 features for [32, 32, 3]
                                  {"relu3", relu()},
                                  {"fc2", linear(120, 84)},
                                  {"relu4", relu()},
                                  {"fc3", linear(84, options.classes)},
                              });
  return {"lenet", std::make_shared<nn::Sequential>(layers), input, options.seed, options.device};
}

}  // namespace convoy::models
