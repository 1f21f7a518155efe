// The examples of docs/layers.md, which scripts/layers_page.py takes from the bodies of these tests.
#include <gtest/gtest.h>

#include <fstream>

#include "convoy/datasets/formats/readers.h"
#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/io/checkpoint.h"
#include "convoy/engine/io/file.h"
#include "convoy/engine/io/onnx.h"
#include "convoy/engine/io/state_dict.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/engine/ops/ops.h"
#include "convoy/engine/optim/optimizer.h"
#include "tests/testing/source_tree/source_path.h"
#include "tests/testing/support/temp_directory.h"

namespace convoy {
namespace {

class LayerExamples : public ::testing::Test {
 protected:
  static Tensor values(const Shape& shape) {
    std::vector<float> all;
    for (std::int64_t i = 0; i < shape.numel(); ++i)
      all.push_back(static_cast<float>(i * 7919 % 101 - 50) / 50);
    return Tensor::from(all, shape, Device::cpu());
  }
  const Tensor images = values({2, 8, 8, 3});
  const Variable x{values({2, 5, 16})};
  const testing::TempDirectory temporary;
  const std::filesystem::path directory = temporary.path();
};

TEST_F(LayerExamples, Conv2d) {
  nn::Conv2d conv(3, 16, {.stride = 2, .padding = 1});
  EXPECT_EQ(conv(images).shape(), (Shape{2, 4, 4, 16}));
  nn::Conv2d depthwise(3, 3, {.kernel = 5, .padding = 2, .groups = 3, .bias = false});
  EXPECT_EQ(depthwise(images).shape(), (Shape{2, 8, 8, 3}));
  nn::Conv2d dilated(3, 16, {.kernel = {3, 5}, .padding = kSamePadding, .dilation = 2});
  EXPECT_EQ(dilated(images).shape(), (Shape{2, 8, 8, 16}));
  nn::Conv2d mirrored(3, 16, {.padding = {1, 0}, .padding_mode = PaddingMode::reflect});
  EXPECT_EQ(mirrored(images).shape(), (Shape{2, 8, 6, 16}));
}

TEST_F(LayerExamples, Linear) {
  nn::Linear linear(16, 10);
  EXPECT_EQ(linear(x).shape(), (Shape{2, 5, 10}));
}

TEST_F(LayerExamples, BatchNorm2d) {
  nn::BatchNorm2d norm(3, {.momentum = 0.01});
  EXPECT_EQ(norm(images, {.training = true}).shape(), (Shape{2, 8, 8, 3}));  // statistics of the batch
  EXPECT_EQ(norm(images).shape(), (Shape{2, 8, 8, 3}));                      // running statistics
}

TEST_F(LayerExamples, Function) {
  nn::Function halve("Halve", [](const Variable& input) { return input / 2; });
  EXPECT_EQ(halve(x).shape(), (Shape{2, 5, 16}));
}

TEST_F(LayerExamples, Activation) {
  nn::Activation activation(nn::ActivationKind::gelu);
  EXPECT_EQ(activation(x).shape(), (Shape{2, 5, 16}));
}

TEST_F(LayerExamples, ReLU) {
  nn::Sequential net = nn::sequential(nn::Conv2d(3, 16), nn::ReLU());
  EXPECT_EQ(net(images).shape(), (Shape{2, 6, 6, 16}));
}

TEST_F(LayerExamples, GELU) {
  nn::Sequential net = nn::sequential(nn::Linear(16, 4), nn::GELU());
  EXPECT_EQ(net(x).shape(), (Shape{2, 5, 4}));
}

TEST_F(LayerExamples, SiLU) {
  nn::Sequential net = nn::sequential(nn::Linear(16, 4), nn::SiLU());
  EXPECT_EQ(net(x).shape(), (Shape{2, 5, 4}));
}

TEST_F(LayerExamples, Hardswish) {
  nn::Sequential net = nn::sequential(nn::Conv2d(3, 16), nn::Hardswish());
  EXPECT_EQ(net(images).shape(), (Shape{2, 6, 6, 16}));
}

TEST_F(LayerExamples, Tanh) {
  nn::Sequential net = nn::sequential(nn::Linear(16, 4), nn::Tanh());
  EXPECT_EQ(net(x).shape(), (Shape{2, 5, 4}));
}

TEST_F(LayerExamples, Sigmoid) {
  nn::Sequential net = nn::sequential(nn::Linear(16, 4), nn::Sigmoid());
  EXPECT_EQ(net(x).shape(), (Shape{2, 5, 4}));
}

TEST_F(LayerExamples, Dropout) {
  nn::Dropout dropout(0.5);
  const Tensor ids =
      Tensor::from(std::vector<std::int32_t>{7, 8}, {2}, Device::cpu());  // Batch::ids of a loader
  EXPECT_EQ(dropout(x, {.training = true, .seed = 1, .sample_ids = ids}).shape(), (Shape{2, 5, 16}));
  EXPECT_EQ(dropout(x), x);
}

TEST_F(LayerExamples, MaxPool2d) {
  nn::MaxPool2d halve(2);
  EXPECT_EQ(halve(images).shape(), (Shape{2, 4, 4, 3}));
  nn::MaxPool2d overlapping({.kernel = 3, .stride = 2, .padding = 1});
  EXPECT_EQ(overlapping(images).shape(), (Shape{2, 4, 4, 3}));
  nn::MaxPool2d rounded_up({.kernel = {2, 3}, .stride = {2, 3}, .ceil_mode = true});
  EXPECT_EQ(rounded_up(images).shape(), (Shape{2, 4, 3, 3}));
}

TEST_F(LayerExamples, AvgPool2d) {
  nn::AvgPool2d pool(4);
  EXPECT_EQ(pool(images).shape(), (Shape{2, 2, 2, 3}));
  nn::AvgPool2d padded({.kernel = 3, .stride = 2, .padding = 1, .count_include_pad = false});
  EXPECT_EQ(padded(images).shape(), (Shape{2, 4, 4, 3}));
}

TEST_F(LayerExamples, AdaptiveMaxPool2d) {
  nn::AdaptiveMaxPool2d pool({2, 3});
  EXPECT_EQ(pool(images).shape(), (Shape{2, 2, 3, 3}));
}

TEST_F(LayerExamples, AdaptiveAvgPool2d) {
  nn::AdaptiveAvgPool2d pool(3);
  EXPECT_EQ(pool(images).shape(), (Shape{2, 3, 3, 3}));
}

TEST_F(LayerExamples, GlobalAvgPool2d) {
  nn::GlobalAvgPool2d pool;
  EXPECT_EQ(pool(images).shape(), (Shape{2, 3}));
}

TEST_F(LayerExamples, Flatten) {
  nn::Flatten flatten;
  EXPECT_EQ(flatten(images).shape(), (Shape{2, 192}));
}

TEST_F(LayerExamples, Sequential) {
  nn::Sequential net({{"conv", nn::Conv2d(3, 16)}, {"relu", nn::ReLU()}, {"pool", nn::GlobalAvgPool2d()}});
  EXPECT_EQ(net(images).shape(), (Shape{2, 16}));
  EXPECT_EQ(net.parameters()[0].name, "conv.weight");
}

TEST_F(LayerExamples, sequential) {
  nn::Sequential net =
      nn::sequential(nn::Conv2d(3, 16), nn::ReLU(), nn::MaxPool2d(2), nn::Flatten(), nn::Linear(144, 10));
  EXPECT_EQ(net(images).shape(), (Shape{2, 10}));
  EXPECT_EQ(net.parameters()[2].name, "4.weight");
}

TEST_F(LayerExamples, ResidualBlock) {
  nn::ResidualBlock block({{"conv1", nn::Conv2d(3, 3, {.padding = 1})}, {"bn1", nn::BatchNorm2d(3)}},
                          nullptr);
  EXPECT_EQ(block(images).shape(), (Shape{2, 8, 8, 3}));
}

TEST_F(LayerExamples, checkpoint_residual_blocks) {
  nn::ResidualBlock block({{"conv1", nn::Conv2d(3, 3, {.padding = 1})}}, nullptr);
  EXPECT_EQ(nn::checkpoint_residual_blocks(block), 1);
}

TEST_F(LayerExamples, LayerNorm) {
  nn::LayerNorm norm({16});
  EXPECT_EQ(norm(x).shape(), (Shape{2, 5, 16}));
}

TEST_F(LayerExamples, GroupNorm) {
  nn::GroupNorm norm(/*groups=*/4, /*channels=*/16, {.epsilon = 1e-6});
  EXPECT_EQ(norm(x).shape(), (Shape{2, 5, 16}));
}

TEST_F(LayerExamples, Embedding) {
  nn::Embedding words(/*num_embeddings=*/1000, /*embedding_dim=*/16);
  const Tensor text = Tensor::from(std::vector<std::int32_t>{3, 1, 4, 1, 5, 9}, {2, 3}, Device::cpu());
  EXPECT_EQ(words(text).shape(), (Shape{2, 3, 16}));
}

TEST_F(LayerExamples, ConvTranspose2d) {
  nn::ConvTranspose2d twice(3, 8, {.kernel = 4, .stride = 2, .padding = 1});
  EXPECT_EQ(twice(images).shape(), (Shape{2, 16, 16, 8}));
}

TEST_F(LayerExamples, MultiheadAttention) {
  nn::MultiheadAttention attention(/*width=*/16, /*heads=*/4, {.causal = true});
  EXPECT_EQ(attention(x).shape(), (Shape{2, 5, 16}));
  EXPECT_EQ(attention({x, x, x})[0].shape(), (Shape{2, 5, 16}));  // query, key, value
}

TEST_F(LayerExamples, TransformerEncoderLayer) {
  nn::TransformerEncoderLayer layer(/*width=*/16, /*heads=*/4, {.hidden = 64});
  EXPECT_EQ(layer(x).shape(), (Shape{2, 5, 16}));
}

TEST_F(LayerExamples, cross_entropy) {
  const Variable logits(Tensor::zeros({2, 10}, DType::f32, Device::cpu()), true);
  const Tensor labels = Tensor::from(std::vector<std::int32_t>{3, 0}, {2}, Device::cpu());
  const CrossEntropy result = cross_entropy(logits, labels, {.smoothing = 0.1, .scale = 0.5});
  backward(result.loss);
  EXPECT_EQ(result.losses.shape(), (Shape{2}));
  EXPECT_EQ(result.correct.shape(), (Shape{2}));
}

TEST_F(LayerExamples, cross_entropy_sum) {
  const Variable logits(Tensor::zeros({2, 10}, DType::f32, Device::cpu()), true);
  const Tensor labels = Tensor::from(std::vector<std::int32_t>{3, 0}, {2}, Device::cpu());
  const Variable loss = cross_entropy_sum(logits, labels) / 2;  // the mean over the batch
  EXPECT_EQ(loss.shape(), (Shape{1}));
}

TEST_F(LayerExamples, nll_loss) {
  const Tensor labels = Tensor::from(std::vector<std::int32_t>{3, 0}, {2}, Device::cpu());
  const Variable log_p = log_softmax(slice(x, 1, 0, 1), -1);
  const Variable loss = nll_loss(reshape(log_p, {2, 16}), labels);
  EXPECT_EQ(loss.shape(), (Shape{1}));
}

TEST_F(LayerExamples, mse_loss) {
  EXPECT_EQ(mse_loss(x, x + 2).value().item(), 4);
  EXPECT_EQ(mse_loss(x, x + 2, Reduction::none).shape(), (Shape{2, 5, 16}));
}

TEST_F(LayerExamples, l1_loss) {
  EXPECT_EQ(l1_loss(x, x - 2).value().item(), 2);
  EXPECT_EQ(l1_loss(x, x - 2, Reduction::none).shape(), (Shape{2, 5, 16}));
}

TEST_F(LayerExamples, huber_loss) {
  const Variable loss = huber_loss(x, 3 * x, Reduction::mean, /*delta=*/0.5);
  EXPECT_EQ(loss.shape(), (Shape{1}));
}

TEST_F(LayerExamples, smooth_l1_loss) {
  const Variable loss = smooth_l1_loss(x, x + 2, Reduction::sum, /*beta=*/0.5);
  EXPECT_EQ(loss.shape(), (Shape{1}));
}

TEST_F(LayerExamples, binary_cross_entropy_with_logits) {
  const Variable loss = binary_cross_entropy_with_logits(x, sigmoid(x));
  EXPECT_EQ(loss.shape(), (Shape{1}));
}

TEST_F(LayerExamples, kl_divergence) {
  const Variable loss = kl_divergence(log_softmax(x), softmax(2 * x), Reduction::sum);
  EXPECT_EQ(loss.shape(), (Shape{1}));
}

TEST_F(LayerExamples, read_cifar10) {
  try {
    data::read_cifar10(directory);  // has no data set here
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()).empty(), false);
  }
}

TEST_F(LayerExamples, read_mnist) {
  try {
    data::read_mnist(directory);  // has no data set here
  } catch (const DataError& error) {
    EXPECT_EQ(std::string(error.what()).empty(), false);
  }
}

TEST_F(LayerExamples, read_image_folder) {
  const std::filesystem::path image = testing::source_path("docs/images/report.png");
  for (const char* name : {"train/cat", "train/dog", "test/cat", "test/dog"}) {
    std::filesystem::create_directories(directory / name);
    std::filesystem::copy_file(image, directory / name / "1.png");
  }
  const data::DataSet data = data::read_image_folder(directory, {.image_size = 32});
  EXPECT_EQ(data.classes.size(), 2u);
  EXPECT_EQ(data.train.size(), 2);
}

TEST_F(LayerExamples, generate_shapes) {
  const data::DataSet data = data::generate_shapes({.train = 100, .test = 20});
  EXPECT_EQ(data.classes.size(), 10u);
  EXPECT_EQ(data.train.images.shape(), (Shape{100, 32, 32, 3}));
}

TEST_F(LayerExamples, read_image) {
  const Tensor image = data::read_image(testing::source_path("docs/images/report.png"), 64);
  EXPECT_EQ(image.shape(), (Shape{64, 64, 3}));
}

TEST_F(LayerExamples, decode_image) {
  std::ifstream file(testing::source_path("docs/images/report.png"), std::ios::binary);
  const std::string bytes(std::istreambuf_iterator<char>(file), {});
  EXPECT_EQ(data::decode_image(bytes, "report.png", 64).shape(), (Shape{64, 64, 3}));
}

TEST_F(LayerExamples, save) {
  nn::Sequential net = nn::sequential(nn::Conv2d(3, 16), nn::ReLU());
  save(net, directory / "net.safetensors");
}

TEST_F(LayerExamples, load) {
  nn::Sequential net = nn::sequential(nn::Linear(16, 4)), copy = nn::sequential(nn::Linear(16, 4));
  net.initialize(/*seed=*/7);
  save(net, directory / "net.safetensors");
  load(copy, directory / "net.safetensors");
  EXPECT_EQ(io::parameters_hash(copy), io::parameters_hash(net));
}

TEST_F(LayerExamples, to_onnx) {
  nn::Sequential net = nn::sequential(nn::Conv2d(3, 16), nn::ReLU(), nn::GlobalAvgPool2d());
  to_onnx(net, directory / "net.onnx", {8, 8, 3});
}

TEST_F(LayerExamples, encode_onnx) {
  nn::Sequential net = nn::sequential(nn::Conv2d(3, 16), nn::GlobalAvgPool2d());
  const std::string bytes = io::encode_onnx(net, {8, 8, 3}, {.name = "net", .metadata = {{"author", "me"}}});
  EXPECT_EQ(bytes.empty(), false);
}

TEST_F(LayerExamples, state_dict) {
  const nn::Conv2d conv(3, 16);
  const std::vector<io::NamedTensor> tensors = io::state_dict(conv);
  EXPECT_EQ(tensors[0].name, "weight");
  EXPECT_EQ(tensors[0].tensor.shape(), (Shape{16, 3, 3, 3}));
}

TEST_F(LayerExamples, load_state_dict) {
  nn::Linear linear(2, 1, /*bias=*/false);
  const Tensor weight = Tensor::from(std::vector<float>{1, 2}, {1, 2}, Device::cpu());
  io::load_state_dict(linear, {{"weight", weight}}, "my weights");
  EXPECT_EQ(linear(Tensor::full({1, 2}, 1, DType::f32, Device::cpu())).value().item(), 3);
}

TEST_F(LayerExamples, parameters_hash) {
  EXPECT_EQ(io::parameters_hash(nn::Linear(2, 2)),
            io::parameters_hash(nn::Linear(2, 2)));  // one default seed
}

TEST_F(LayerExamples, read_safetensors) {
  save(nn::Linear(16, 4), directory / "linear.safetensors");
  const io::SafetensorsFile file = io::read_safetensors(directory / "linear.safetensors", Device::cpu());
  EXPECT_EQ(file.tensors[0].tensor.shape(), (Shape{4, 16}));
}

TEST_F(LayerExamples, encode_safetensors) {
  const std::string bytes = io::encode_safetensors({{"images", images}}, {{"author", "me"}});
  io::write_file_atomically(directory / "images.safetensors", bytes);
}

TEST_F(LayerExamples, open_checkpoint) {
  const nn::Linear net(16, 4);
  optim::Adam optimizer(net.parameters(), {});
  io::CheckpointDirectory checkpoints(directory);
  const std::filesystem::path path =
      checkpoints.save(net, optimizer, {.step = 3, .model = "linear"}, /*best=*/true);
  EXPECT_EQ(io::open_checkpoint(path).manifest.step, 3);
}

TEST_F(LayerExamples, load_checkpoint) {
  nn::Linear net(16, 4);
  optim::Adam optimizer(net.parameters(), {});
  io::CheckpointDirectory checkpoints(directory);
  checkpoints.save(net, optimizer, {.step = 3, .model = "linear"}, /*best=*/true);
  io::load_checkpoint(*checkpoints.latest(), net, &optimizer);
}

}  // namespace
}  // namespace convoy
