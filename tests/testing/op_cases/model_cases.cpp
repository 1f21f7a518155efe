// The ops of each network, in the order of a forward pass. ReLUs and residual additions are fused into the
// layer before them, as in training.
#include "tests/testing/op_cases/model_ops.h"

namespace convoy::testing {

std::vector<ModelCase> lenet_cases(Sizing sizing) {
  const Pool2dOptions half_size{.kernel = 2, .stride = 2};
  ModelOps ops("lenet", sizing);
  ops.conv2d({.side = 32, .in = 3, .out = 6, .kernel = 5, .bias = true, .relu = true, .of_images = true});
  ops.pooling("max_pool2d", max_pool2d, 28, 6, half_size);
  ops.conv2d({.side = 14, .in = 6, .out = 16, .kernel = 5, .bias = true, .relu = true});
  ops.pooling("max_pool2d", max_pool2d, 10, 16, half_size);
  ops.unary("flatten", flatten, 5, 16);
  ops.linear({.in = 400, .out = 120, .relu = true});
  ops.linear({.in = 120, .out = 84, .relu = true});
  ops.linear({.in = 84, .out = 10});
  ops.loss("cross_entropy_sum", 10, 0);
  ops.scale_loss();
  return ops.take();
}

std::vector<ModelCase> resnet18_cases(Sizing sizing) {
  ModelOps ops("resnet18", sizing);
  ops.conv2d({.side = 32, .in = 3, .out = 64, .padding = 1, .of_images = true});
  // Two blocks of two convolutions per group. The first group has the stem's width; later ones halve the
  // side.
  ops.conv2d({.side = 32, .in = 64, .out = 64, .padding = 1}, 4);
  ops.batch_norm({.side = 32, .channels = 64, .relu = true}, 3);  // including the stem's
  ops.batch_norm({.side = 32, .channels = 64, .residual = true, .relu = true}, 2);
  for (const std::int64_t out : {128, 256, 512}) {
    const std::int64_t in = out / 2;
    const std::int64_t side = 32 * 64 / in;  // of the previous group
    ops.conv2d({.side = side, .in = in, .out = out, .kernel = 1, .stride = 2});
    ops.batch_norm({.side = side / 2, .channels = out});
    ops.conv2d({.side = side, .in = in, .out = out, .stride = 2, .padding = 1});
    ops.conv2d({.side = side / 2, .in = out, .out = out, .padding = 1}, 3);
    ops.batch_norm({.side = side / 2, .channels = out, .relu = true}, 2);
    ops.batch_norm({.side = side / 2, .channels = out, .residual = true, .relu = true}, 2);
  }
  ops.unary("global_avg_pool2d", global_avg_pool2d, 4, 512);
  ops.linear({.in = 512, .out = 10});
  ops.loss("cross_entropy_sum", 10, 0);
  ops.scale_loss();
  return ops.take();
}

std::vector<ModelCase> speed_recipe_cases(Sizing sizing) {
  const Pool2dOptions half_size{.kernel = 2, .stride = 2};
  ModelOps ops("speed_recipe", sizing);
  const auto norm = [&](std::int64_t side, std::int64_t channels) {
    ops.batch_norm(
        {.side = side, .channels = channels, .fixed_scale = true, .epsilon = 1e-12, .momentum = 0.4}, 2);
    ops.unary("gelu", gelu, side, channels, 2);
  };
  ops.conv2d({.side = 32, .in = 3, .out = 24, .kernel = 2, .bias = true, .of_images = true, .frozen = true});
  ops.unary("gelu", gelu, 31, 24);
  ops.conv2d({.side = 31, .in = 24, .out = 64, .padding = 1});
  ops.pooling("max_pool2d", max_pool2d, 31, 64, half_size);
  ops.conv2d({.side = 15, .in = 64, .out = 64, .padding = 1});
  norm(15, 64);
  ops.conv2d({.side = 15, .in = 64, .out = 256, .padding = 1});
  ops.pooling("max_pool2d", max_pool2d, 15, 256, half_size);
  // The last of the second group and the first of the third.
  ops.conv2d({.side = 7, .in = 256, .out = 256, .padding = 1}, 2);
  norm(7, 256);
  ops.pooling("max_pool2d", max_pool2d, 7, 256, half_size);
  ops.conv2d({.side = 3, .in = 256, .out = 256, .padding = 1});
  norm(3, 256);
  ops.pooling("max_pool2d", max_pool2d, 3, 256, {.kernel = 3, .stride = 3});
  ops.unary("flatten", flatten, 1, 256);
  ops.linear({.in = 256, .out = 10, .bias = false});
  ops.scale(10, 1.0 / 256);
  ops.loss("cross_entropy_sum", 10, 0.2);
  return ops.take();
}

std::vector<ModelCase> other_op_cases(Sizing sizing) {
  constexpr std::int64_t kSide = 32, kChannels = 64;
  ModelOps ops("ops", sizing);
  for (const UnaryOp& unary : unary_ops()) ops.unary(unary.name, unary.op, kSide, kChannels, 1, unary.domain);
  ops.dropout(kSide, kChannels);
  ops.cast(kSide, kChannels);
  ops.reshape(kSide, kChannels);
  ops.unary("sum", sum, kSide, kChannels);
  ops.unary("mean", mean, kSide, kChannels);
  ops.pooling("avg_pool2d", avg_pool2d, kSide, kChannels, {.kernel = 2, .stride = 2});
  const auto adaptive_max = [](const Variable& x) { return adaptive_max_pool2d(x, 7); };
  ops.unary("adaptive_max_pool2d", adaptive_max, kSide, kChannels);
  const auto adaptive_avg = [](const Variable& x) { return adaptive_avg_pool2d(x, 7); };
  ops.unary("adaptive_avg_pool2d", adaptive_avg, kSide, kChannels);
  ops.sync_batch_norm(kSide, kChannels);
  ops.matmul(4, 512, 512);
  ops.loss("cross_entropy", 1000, 0);
  for (const OpCase& op_case : all_op_cases())
    if (!op_case.benchmark.empty()) ops.op_case(op_case);
  return ops.take();
}

std::vector<ModelCase> all_model_cases(Sizing sizing) {
  std::vector<ModelCase> all;
  for (const auto& network : {lenet_cases, resnet18_cases, speed_recipe_cases, other_op_cases})
    for (ModelCase& one : network(sizing)) all.push_back(std::move(one));
  return all;
}

}  // namespace convoy::testing
