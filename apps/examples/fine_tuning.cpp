// Fine-tuning: continues with a network that was trained on other images, under a new last layer for new classes.
//
//   convoy-train --model resnet20 --out runs/resnet20-cifar10
//   fine_tuning runs/resnet20-cifar10 data/flowers [epochs, default 10]
//   fine_tuning none data/flowers                                        # from scratch, for comparison
//
// The directory has one subdirectory of images per class, as --dataset folder of convoy-train describes.
#include <convoy/convoy.h>
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

using namespace convoy;

namespace {

constexpr std::uint64_t kSeed = 1;
constexpr double kPeakRate = 0.1;
constexpr double kBackboneRate = 0.5;  // of the rate of the new layer, so that what was learned is kept

bool is_new(const std::string& name) { return name.starts_with("fc."); }  // the last layer of a ResNet

/// Copies the parameters and statistics of the best checkpoint of a run, all but those of the last layer.
void load_backbone(const models::Model& model, const std::filesystem::path& run) {
  const auto checkpoint = io::CheckpointDirectory(run / "checkpoints").best();
  if (!checkpoint) throw CheckpointError(run.string() + ": found no checkpoint of a training");
  const std::filesystem::path file = checkpoint->path / "model.safetensors";
  std::vector<io::NamedTensor> tensors = io::read_safetensors(file, Device::cpu()).tensors;
  std::erase_if(tensors, [](const io::NamedTensor& each) { return is_new(each.name); });
  fmt::print("{} tensors from {}\n", tensors.size(), file.string());
  for (const io::NamedTensor& own : io::state_dict(model.root()))
    if (is_new(own.name)) tensors.push_back(own);
  io::load_state_dict(model.root(), tensors, file.string());
}

/// Returns parameter groups in which the new layer learns at the full rate, and the others at a part of it.
std::vector<optim::ParameterGroup> make_groups(const models::Model& model, double backbone_rate) {
  std::vector<nn::NamedParameter> backbone, head;
  for (const nn::NamedParameter& each : model.parameters())
    (is_new(each.name) ? head : backbone).push_back(each);
  return {{.parameters = head}, {.parameters = backbone, .lr_scale = backbone_rate, .weight_decay = 5e-4}};
}

double test_accuracy(const models::Model& model, const data::ImageSet& test,
                     const data::TransformSpec& transform, const DeviceContext& device) {
  const NoGrad no_grad;
  data::DataLoader loader(test, {.shuffle = false, .transform = transform.evaluation(), .device = device});
  std::int64_t correct = 0;
  for (const data::Batch& batch : loader.epoch(0))
    for (const auto is_correct :
         cross_entropy(model(batch.images), batch.labels).correct.to_vector<std::int32_t>())
      correct += is_correct;
  return static_cast<double>(correct) / static_cast<double>(test.size());
}

void train(const std::string& run, const std::filesystem::path& images, std::int64_t epochs) {
  const DeviceContext device = Device::best();
  const data::DataSet data = data::read_image_folder(images, {.image_size = 32});
  const data::TransformSpec transform =
      data::make_transform("crop=4,flip", data::channel_statistics(data.train));
  data::DataLoader loader(data.train,
                          {.global_batch = 64, .seed = kSeed, .transform = transform, .device = device});
  const models::Model model = models::resnet20({.input = data.image_shape(),
                                                .classes = static_cast<int>(data.classes.size()),
                                                .seed = kSeed,
                                                .device = device});
  const bool is_scratch = run == "none";
  if (!is_scratch) load_backbone(model, run);
  optim::Sgd optimizer(make_groups(model, is_scratch ? 1 : kBackboneRate),
                       {.momentum = 0.9, .nesterov = true});
  const std::int64_t steps = epochs * loader.steps_per_epoch();
  const optim::Schedule rate = optim::cosine({.peak = kPeakRate, .steps = steps, .warmup = steps / 5});
  fmt::print("{} training and {} test images, {} classes\n", data.train.size(), data.test.size(),
             data.classes.size());

  for (std::int64_t epoch = 0, step = 0; epoch < epochs; ++epoch) {
    for (const data::Batch& batch : loader.epoch(epoch)) {
      const Variable logits = model(batch.images, {.training = true});
      backward(cross_entropy_sum(logits, batch.labels) / static_cast<double>(batch.global_count));
      optimizer.step(rate(step++));
    }
    fmt::print("epoch {}: test accuracy {:.1f}%\n", epoch + 1,
               100 * test_accuracy(model, data.test, transform, device));
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argv[1][0] == '-') {
    fmt::print("usage: fine_tuning RUN|none IMAGES [epochs, default 10]\n");
    return argc == 2 && std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    train(argv[1], argv[2], argc > 3 ? std::atoll(argv[3]) : 10);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "fine_tuning: error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
