#include "convoy/apps/programs/library_loading.h"

#include <vector>

#include "convoy/engine/autograd/backward.h"
#include "convoy/engine/ops/ops.h"

namespace convoy {

void load_libraries(const DeviceContext& device, const Precision& precision) {
  constexpr std::int64_t kChannels = 16, kClasses = 10;
  const auto parameter = [&](const Shape& shape, DType type) {
    return Variable(Tensor::full(shape, 0.0625, type, device), /*requires_grad=*/true);
  };
  const Variable images(Tensor::full({2, 8, 8, kChannels}, 0.5, precision.compute, device));
  const Variable filter = parameter({kChannels, 3, 3, kChannels}, precision.compute);
  const Variable weight = parameter({kClasses, kChannels}, precision.compute);
  const DType type = precision.parameters;  // of statistics
  const Variable scale = parameter({kChannels}, type), shift = parameter({kChannels}, type);
  const BatchNormStatistics running{Tensor::full({kChannels}, 0, type, device),
                                    Tensor::full({kChannels}, 1, type, device)};
  const Conv2dOptions same_size{.padding = 1};
  const Variable x = batch_norm(conv2d(images, filter, {}, same_size), scale, shift, running,
                                /*training=*/true, {.activation = FusedActivation::relu});
  const Variable logits = linear(global_avg_pool2d(conv2d(x, filter, {}, same_size)), weight, {});
  const Tensor labels = Tensor::from(std::vector<std::int32_t>{0, 1}, {2}, device);
  backward(cross_entropy_sum(logits, labels));
  device.synchronize();
}

std::jthread load_libraries_in_background(const DeviceContext& device, const Precision& precision) {
  if (device.kind() != DeviceKind::cuda) return {};
  return std::jthread([index = device.device().index, precision] {
    try {
      const DeviceContext own = DeviceContext::create_cuda(index);
      own.set_autotune(false);
      load_libraries(own, precision);
    } catch (const std::exception&) {
      // Nothing depends on this step.
    }
  });
}

}  // namespace convoy
