#include "convoy/engine/ops/ops.h"
#include "tests/testing/op_cases/op_case.h"

namespace convoy::testing {
namespace {

OpCase loss(std::string name, std::int64_t samples, std::int64_t classes, double smoothing) {
  return {.name = std::move(name),
          .inputs = {{samples, classes}},
          .op =
              [classes, smoothing](std::span<const Variable> x) {
                std::vector<std::int32_t> labels(static_cast<std::size_t>(x[0].shape()[0]));
                for (std::size_t i = 0; i < labels.size(); ++i)
                  labels[i] = static_cast<std::int32_t>((5 * i + 1) % static_cast<std::size_t>(classes));
                return cross_entropy_sum(x[0], Tensor::from(labels, {x[0].shape()[0]}, x[0].context()),
                                         smoothing);
              },
          .terms = static_cast<double>(samples * classes),
          .batched = {0}};
}

}  // namespace

std::vector<OpCase> loss_cases() {
  return {loss("cross_entropy", 5, 7, 0), loss("cross_entropy_smoothed", 4, 10, 0.2),
          loss("cross_entropy_one", 1, 1, 0)};
}

}  // namespace convoy::testing
