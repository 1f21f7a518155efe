// The models of this project, by function and by name. All functions are thread-safe after the last add().
#pragma once

#include <functional>

#include "convoy/models/model.h"

namespace convoy::models {

/// The first layers of a ResNet.
enum class Stem : std::uint8_t {
  automatic,  // imagenet if both sides of the images have at least 128 pixels, else cifar
  cifar,      // 3x3 convolution of stride 1
  imagenet,   // 7x7 convolution of stride 2, then 3x3 max pooling of stride 2
};

/// Options of all models.
struct Options {
  Shape input{32, 32, 3};                // [H, W, C]
  int classes = 10;                      // number of logits
  std::uint64_t seed = 1;                // of the initial parameters
  Stem stem = Stem::automatic;           // of models that have stems
  DeviceContext device = Device::cpu();  // of the parameters
};

/// Creates the CNN of the PyTorch tutorials, after LeNet-5 (LeCun et al., 1998): conv 6 5x5 - pool - conv 16
/// 5x5 - pool - 120 - 84 - classes, with ReLU and max pooling. It has 62,006 parameters for [32, 32, 3]. The
/// parameter names are those of PyTorch's CIFAR tutorial: conv1, conv2, fc1 … fc3. Throws UsageError for a
/// stem other than automatic.
Model lenet(const Options& options = {});
/// Creates the ResNet-20 for CIFAR of He et al., arXiv:1512.03385: 3 groups of 3 basic blocks with widths 16,
/// 32 and 64. The shortcut of a block that changes the shape is a 1x1 convolution and a batch norm (option B
/// of the paper), as in the larger ResNets. This gives 272,474 parameters for [32, 32, 3] and 10 classes; the
/// padded shortcuts of the paper give 269,722. Throws UsageError for the imagenet stem.
Model resnet20(const Options& options = {});
/// Creates a ResNet-18 with the layers, parameter names and initialization of torchvision, with either stem.
Model resnet18(const Options& options = {});
/// Creates a ResNet-34 in the same way.
Model resnet34(const Options& options = {});
/// Creates a ResNet-50 in the same way.
Model resnet50(const Options& options = {});

/// A model that programs know by name.
struct Entry {
  std::string name;                           // the value of --model
  std::function<Model(const Options&)> make;  // creates the model
  bool has_batch_norm = false;                // whether it has a nn::BatchNorm2d
  bool has_stems = false;                     // whether Options::stem selects one of several
};

/// Adds a model of one's own, which then is a value of --model. Call it at the beginning of main(): it is not
/// thread-safe. Throws UsageError if the name is taken or `make` is empty.
void add(Entry entry);

/// Creates a model by name. Throws UsageError for an unknown name; the message suggests the nearest name and
/// lists all. Throws UsageError as well if an added model contradicts its entry.
Model make(std::string_view name, const Options& options = {});
/// Returns the names of all models, in the order in which they were added.
std::vector<std::string> names();
/// Returns the entry of a model. Throws UsageError like make().
const Entry& find(std::string_view name);

}  // namespace convoy::models
