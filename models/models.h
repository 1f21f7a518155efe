// The models of this project, by function and by name. All functions are thread-safe after the last add().
#pragma once

#include <functional>
#include <optional>

#include "convoy/engine/nn/layers.h"
#include "convoy/models/model.h"

namespace convoy::models {

/// The first layers of a ResNet.
enum class Stem : std::uint8_t {
  automatic,  // imagenet if both sides of the images have more than 64 pixels, else cifar
  cifar,      // 3x3 convolution of stride 1
  imagenet,   // 7x7 convolution of stride 2, then 3x3 max pooling of stride 2
};

/// Returns the stem that `automatic` stands for with images of shape `input`, [H, W, C], and any other stem
/// as it is.
Stem resolve_stem(Stem stem, const Shape& input);

/// Options of all models.
struct Options {
  Shape input{32, 32, 3};       // [H, W, C]
  int classes = 10;             // number of logits
  std::uint64_t seed = 1;       // of the initial parameters
  Stem stem = Stem::automatic;  // of models that have stems
  /// Of the speedrun networks: gelu or silu. nullopt: gelu, and the one activation of other models.
  std::optional<nn::ActivationKind> activation = {};
  DeviceContext device = Device::cpu();  // of the parameters
};

/// Throws UsageError unless the input has the shape [H, W, C], and if the options choose a stem or an activation: for a
/// model that has no such choice. `name` begins the message.
void check_plain(std::string_view name, const Options& options);

/// Creates the CNN of the PyTorch tutorials, after LeNet-5 (LeCun et al., 1998): conv 6 5x5 - pool - conv 16
/// 5x5 - pool - 120 - 84 - classes, with ReLU and max pooling. It has 62,006 parameters for [32, 32, 3]. The
/// parameter names are those of PyTorch's CIFAR tutorial: conv1, conv2, fc1 … fc3. Throws UsageError for a
/// stem other than automatic, and for an activation, as all ResNets do.
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
/// Creates a ResNet-101 in the same way.
Model resnet101(const Options& options = {});
/// Creates a VGG-11 without batch norms, as torchvision's: 132,863,336 parameters for 1000 classes. Throws UsageError for a
/// stem, an activation, and images that are smaller than 32x32 pixels. Initial values of linear layers are PyTorch's defaults,
/// here and in the next three.
Model vgg11(const Options& options = {});
/// Creates the small MobileNetV3 as torchvision's: 2,542,856 parameters for 1000 classes. Throws UsageError as vgg11().
Model mobilenet_v3_small(const Options& options = {});
/// Creates a ConvNeXt-T as torchvision's, without stochastic depth: 28,589,128 parameters for 1000 classes. Throws
/// UsageError as vgg11().
Model convnext_tiny(const Options& options = {});
/// Creates a ViT-Ti/16, timm's vit_tiny_patch16_224 for images of any size: 5,717,416 parameters for [224, 224, 3] and
/// 1000 classes. Throws UsageError as vgg11(), and unless both sides are multiples of 16.
Model vit_tiny(const Options& options = {});

/// Creates the network of the CIFAR-10 speed records (K. Jordan, arXiv:2404.00498, in the version for the
/// Muon optimizer): a 2x2 convolution that whitens patches, three groups of two 3x3 convolutions of the
/// widths 64, 256 and 256 with a max pooling each, and a linear layer. The 3x3 filters begin as the
/// identity (Conv2dLayerOptions::dirac), batch norms have no trained scale, and activations are GELUs, or
/// SiLUs with Options::activation. The weights of the linear layer begin with a standard deviation of 1, and
/// the logits are divided by the number of its inputs: 256 for images of 32x32 pixels. The network has
/// 1,971,352 parameters for [32, 32, 3] and 10 classes. Call whiten() before a training. Throws UsageError
/// for a stem other than automatic, for an activation other than gelu and silu, and for images that have less
/// than 25x25 pixels, because the last pooling does not fit into them.
Model speedrun(const Options& options = {});
/// Creates the same network with the widths 32, 64 and 64.
Model speedrun_small(const Options& options = {});
/// Creates the network of the record for 96 %: widths 128, 384 and 512, and three convolutions per group. The
/// result of the first one, after its GELU, is added to that of the last one, before its GELU. As in the
/// script of this record, running statistics have PyTorch's momentum, the first bias begins at 0, the linear
/// layer is initialized as nn::Linear, and the logits are divided by 9.
Model speedrun_96(const Options& options = {});
/// Sets the filters of the first layer of one of these networks, such that they whiten the 2x2 patches of
/// images [N, H, W, C] (WhiteningConv2d::whiten). The images must be normalized as in the training. The
/// filters depend on nothing else. They are a buffer, which training does not change. Throws UsageError if
/// the model has no such layer, or if the images do not fit.
void whiten(const Model& model, const Tensor& images);

/// A model that programs know by name.
struct Entry {
  std::string name;                           // the value of --model
  std::function<Model(const Options&)> make;  // creates the model
  bool has_batch_norm = false;                // whether it has a nn::BatchNorm2d
  bool has_stems = false;                     // whether Options::stem selects one of several
  /// Sets initial values that depend on the data. `images` are training images [N, H, W, C], normalized as
  /// the training feeds them. convoy-train calls it before the first step of a new training. Null: there
  /// are none.
  std::function<void(const Model&, const Tensor& images)> initialize_from_data = nullptr;
  bool has_activations = false;  // whether Options::activation selects one of several
  bool is_small = false;         // whether it is made for images of about 32 pixels per side
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
