#include "convoy/engine/io/state_dict.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "convoy/engine/io/file.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"
#include "tests/testing/support/errors.h"
#include "tests/testing/support/temp_directory.h"
#include "tests/testing/support/tiny_training.h"

namespace convoy {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::TinyTraining;

TEST(StateDict, WritesFiltersAsTorchvisionDoes) {
  nn::Conv2d conv(2, 1, {.kernel = 3, .bias = false});
  const Variable filter = conv.parameters()[0].variable;
  ASSERT_EQ(filter.shape(), (Shape{1, 3, 3, 2}));  // in memory [O, kH, kW, I]
  std::vector<float> values;
  for (int i = 0; i < 18; ++i) values.push_back(static_cast<float>(i));
  filter.value().copy_from(Tensor::from(values, filter.shape(), Device::cpu()));

  const std::vector<io::NamedTensor> exported = io::state_dict(conv);
  ASSERT_EQ(exported.size(), 1u);
  EXPECT_EQ(exported[0].tensor.shape(), (Shape{1, 2, 3, 3}));
  EXPECT_THAT(exported[0].tensor.to_vector<float>(),
              ElementsAre(0, 2, 4, 6, 8, 10, 12, 14, 16, 1, 3, 5, 7, 9, 11, 13, 15, 17));

  filter.value().copy_from(Tensor::zeros(filter.shape(), DType::f32, Device::cpu()));
  io::load_state_dict(conv, exported, "test");
  EXPECT_EQ(filter.value().to_vector<float>(), values);
}

TEST(StateDict, WritesTransposedFiltersAsPyTorchDoes) {
  nn::ConvTranspose2d layer(1, 2, {.kernel = 2, .bias = false});
  const Variable filter = layer.parameters()[0].variable;
  ASSERT_EQ(filter.shape(), (Shape{1, 2, 2, 2}));  // in memory [I, kH, kW, O]
  const std::vector<float> values = {0, 1, 2, 3, 4, 5, 6, 7};
  filter.value().copy_from(Tensor::from(values, filter.shape(), Device::cpu()));
  const std::vector<io::NamedTensor> exported = io::state_dict(layer);
  EXPECT_THAT(exported[0].tensor.to_vector<float>(), ElementsAre(0, 2, 4, 6, 1, 3, 5, 7));  // [I, O, kH, kW]

  filter.value().copy_from(Tensor::zeros(filter.shape(), DType::f32, Device::cpu()));
  io::load_state_dict(layer, exported, "test");
  EXPECT_EQ(filter.value().to_vector<float>(), values);

  const nn::ConvTranspose2d wide(3, 5, {.kernel = 4});
  EXPECT_EQ(io::state_dict(wide)[0].tensor.shape(), (Shape{3, 5, 4, 4}));
}

TEST(StateDict, SavesAndLoadsAFile) {
  const testing::TempDirectory directory;
  const std::filesystem::path file = directory.path() / "net.safetensors";
  const auto make = [] { return nn::sequential(nn::Conv2d(2, 3), nn::BatchNorm2d(3)); };
  nn::Sequential net = make(), other = make();
  net.initialize(5);
  save(net, file);
  EXPECT_NE(io::parameters_hash(other), io::parameters_hash(net));
  load(other, file);
  EXPECT_EQ(io::parameters_hash(other), io::parameters_hash(net));

  nn::Sequential narrow = nn::sequential(nn::Conv2d(2, 2), nn::BatchNorm2d(3));
  const std::string before = io::parameters_hash(narrow);
  EXPECT_THAT(testing::message_of<CheckpointError>([&] { load(narrow, file); }),
              AllOf(HasSubstr(file.string()), HasSubstr("0.weight")));
  EXPECT_EQ(io::parameters_hash(narrow), before);
  EXPECT_THAT(testing::message_of<CheckpointError>([&] { load(net, directory.path() / "none"); }),
              HasSubstr("none"));
  EXPECT_THAT(testing::message_of<OutputError>([&] { save(net, directory.path() / "none" / "net"); }),
              HasSubstr("none"));
}

TEST(StateDict, ListsParametersThenBuffers) {
  const TinyTraining training;
  std::vector<std::string> names;
  for (const io::NamedTensor& named : io::state_dict(*training.net)) names.push_back(named.name);
  EXPECT_THAT(names, ElementsAre("conv.weight", "bn.weight", "bn.bias", "fc.weight", "fc.bias",
                                 "bn.running_mean", "bn.running_var"));
}

TEST(StateDict, MismatchesAreListedAndChangeNothing) {
  const TinyTraining training("sgd", DType::f32, 1), other("sgd", DType::f32, 2);
  const std::string before = io::parameters_hash(*training.net);
  std::vector<io::NamedTensor> tensors = io::state_dict(*other.net);
  const DeviceContext cpu = Device::cpu();
  tensors[0].name = "conv1.weight";
  tensors[1].tensor = Tensor::zeros({7}, DType::f32, cpu);
  tensors[2].tensor = Tensor::zeros({4}, DType::i32, cpu);
  for (const char* name : {"u1", "u2", "u3", "u4"}) tensors.push_back({name, tensors[1].tensor});
  EXPECT_THAT(testing::message_of<CheckpointError>(
                  [&] { io::load_state_dict(*training.net, tensors, "x.safetensors"); }),
              AllOf(HasSubstr("x.safetensors: "), HasSubstr("1 missing (\"conv.weight\")"),
                    HasSubstr("5 unexpected (\"conv1.weight\", \"u1\", \"u2\", …)"),
                    HasSubstr("\"bn.weight\" is f32 [7], expected f32 [4]"),
                    HasSubstr("\"bn.bias\" is i32 [4], expected f32 [4]")));
  EXPECT_EQ(io::parameters_hash(*training.net), before);
}

TEST(StateDict, IgnoresBatchCountersAndConvertsPrecision) {
  const TinyTraining single("sgd", DType::f32, 1), twice("sgd", DType::f64, 2);
  std::vector<io::NamedTensor> tensors = io::state_dict(*single.net);
  tensors.push_back({"bn.num_batches_tracked", Tensor::zeros({}, DType::i32, Device::cpu())});
  io::load_state_dict(*twice.net, tensors, "test");
  const TinyTraining back("sgd", DType::f32, 3);
  io::load_state_dict(*back.net, io::state_dict(*twice.net), "test");  // f32 -> f64 -> f32 is exact
  EXPECT_EQ(io::parameters_hash(*back.net), io::parameters_hash(*single.net));
}

TEST(StateDict, HashEqualsThatOfTheFilesData) {
  const TinyTraining training;
  const std::string bytes = io::encode_safetensors(io::state_dict(*training.net));
  std::uint64_t header = 0;
  std::memcpy(&header, bytes.data(), 8);
  EXPECT_EQ(io::parameters_hash(*training.net), io::hash_bytes(std::string_view(bytes).substr(8 + header)));
  EXPECT_NE(io::parameters_hash(*training.net), io::parameters_hash(*TinyTraining("sgd", DType::f32, 2).net));
}

}  // namespace
}  // namespace convoy
