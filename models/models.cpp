#include "convoy/models/models.h"

#include <algorithm>
#include <deque>
#include <utility>

#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/nearest_name.h"

namespace convoy::models {
namespace {

// A deque, so that references to entries remain valid.
std::deque<Entry>& entries() {
  static std::deque<Entry> all = {{"lenet", lenet, false, false, nullptr, false, true},
                                  {"resnet20", resnet20, true, false, nullptr, false, true},
                                  {"resnet18", resnet18, true, true},
                                  {"resnet34", resnet34, true, true},
                                  {"resnet50", resnet50, true, true},
                                  {"resnet101", resnet101, true, true},
                                  {"vgg11", vgg11},
                                  {"mobilenet_v3_small", mobilenet_v3_small, true},
                                  {"convnext_tiny", convnext_tiny},
                                  {"vit_tiny", vit_tiny},
                                  {"speedrun", speedrun, true, false, whiten, true, true},
                                  {"speedrun-small", speedrun_small, true, false, whiten, true, true},
                                  {"speedrun-96", speedrun_96, true, false, whiten, true, true}};
  return all;
}

}  // namespace

void add(Entry entry) {
  const std::vector<std::string> known = names();
  check(std::find(known.begin(), known.end(), entry.name) == known.end(),
        "model '{}': found another model with this name, expected a new one", entry.name);
  check(!entry.name.empty() && entry.make != nullptr,
        "model '{}': found no name or no function that makes it, expected both", entry.name);
  entries().push_back(std::move(entry));
}

const Entry& find(std::string_view name) {
  for (const Entry& entry : entries())
    if (entry.name == name) return entry;
  throw UsageError(unknown_name("model", name, names()));
}

Model make(std::string_view name, const Options& options) {
  const Entry& entry = find(name);
  Model model = entry.make(options);
  for (const nn::Module* const module : model.root().modules())
    check(entry.has_batch_norm || dynamic_cast<const nn::BatchNorm2d*>(module) == nullptr,
          "model '{}': found the batch norm {}, expected has_batch_norm in its entry", entry.name,
          module->path());
  check(model.outputs().front() == Shape{options.classes},
        "model '{}': found an output of shape {} for an image, expected [{}], one logit per class",
        entry.name, model.outputs().front().text(), options.classes);
  return model;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const Entry& entry : entries()) all.push_back(entry.name);
  return all;
}

void check_plain(std::string_view name, const Options& options) {
  check(options.input.rank() == 3, "{}: found an input of shape {}, expected [H, W, C]", name,
        options.input.text());
  check(options.stem == Stem::automatic,
        "{}: found a stem, but this model has none; leave the stem at automatic", name);
  check(!options.activation, "{}: found an activation, but this model has no choice; leave it unset", name);
}

Model lenet(const Options& options) {
  check_plain("lenet", options);
  const Shape& input = options.input;
  std::vector<nn::Layer> layers{{"conv1", nn::Conv2d(static_cast<int>(input[2]), 6, {.kernel = 5})},
                                {"relu1", nn::ReLU()},
                                {"pool1", nn::MaxPool2d(2)},
                                {"conv2", nn::Conv2d(6, 16, {.kernel = 5})},
                                {"relu2", nn::ReLU()},
                                {"pool2", nn::MaxPool2d(2)},
                                {"flatten", nn::Flatten()}};
  const Shape features = nn::Sequential(layers).infer({1, input[0], input[1], input[2]}).shape();
  layers.insert(layers.end(),
                {{"fc1", nn::Linear(static_cast<int>(features[1]), 120)},  // 16 x 5 x 5 for [32, 32, 3]
                 {"relu3", nn::ReLU()},
                 {"fc2", nn::Linear(120, 84)},
                 {"relu4", nn::ReLU()},
                 {"fc3", nn::Linear(84, options.classes)}});
  return {"lenet", nn::Sequential(std::move(layers)), input, options.seed, options.device};
}

}  // namespace convoy::models
