// The first network of a new user, from images to files that other programs read. docs/own-network.md explains it.
#include <convoy/convoy.h>
#include <fmt/format.h>

using namespace convoy;

int main() {
  const DeviceContext device = Device::best();
  const data::DataSet data =
      data::generate_shapes();  // circles, squares and so on: 10 classes of 32x32 pixels
  const data::TransformSpec pixels = data::make_transform("none", data::channel_statistics(data.train));
  nn::Sequential net = nn::sequential(nn::Conv2d(3, 16, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                                      nn::Conv2d(16, 32, {.padding = 1}), nn::ReLU(), nn::MaxPool2d(2),
                                      nn::Flatten(), nn::Linear(32 * 8 * 8, 10));
  net.to(device);
  optim::Adam optimizer(net.parameters(), {});
  data::DataLoader train(data.train, {.global_batch = 64, .seed = 1, .transform = pixels, .device = device});
  for (std::int64_t epoch = 0; epoch < 3; ++epoch)
    for (const data::Batch& batch : train.epoch(epoch)) {
      const Variable logits = net(batch.images, {.training = true});
      backward(cross_entropy_sum(logits, batch.labels) / static_cast<double>(batch.global_count));
      optimizer.step(1e-3);
    }

  const NoGrad no_grad;
  std::int64_t correct = 0;
  data::DataLoader test(data.test, {.shuffle = false, .transform = pixels, .device = device});
  for (const data::Batch& batch : test.epoch(0))
    for (const auto one : cross_entropy(net(batch.images), batch.labels).correct.to_vector<std::int32_t>())
      correct += one;
  fmt::print("{} of {} test images\n", correct, data.test.size());
  save(net, "shapes.safetensors");
  to_onnx(net, "shapes.onnx", data.image_shape());
}
