// Comparison of elementwise losses with PyTorch (tests/reference/losses.py).
#include "convoy/engine/ops/losses.h"
#include "convoy/engine/ops/ops.h"
#include "tests/models/parity_fixture.h"

namespace convoy::testing {
namespace {

class LossesParity : public ParityFixture {
 protected:
  LossesParity() : ParityFixture("losses.safetensors") {}
};

TEST_P(LossesParity, EveryReduction) {
  struct Case {
    std::string name;
    Variable (*op)(const Variable&, const Variable&, Reduction);
    double scale, offset, target_scale, target_offset;
  };
  for (const Case& c :
       {Case{"mse_loss", mse_loss, 1, 0, 1, 0},
        Case{"binary_cross_entropy_with_logits", binary_cross_entropy_with_logits, 40, 0, 0.5, 0.5},
        Case{"kl_divergence", kl_divergence, 2, -3, 0.45, 0.5}})
    for (const auto& [suffix, reduction] :
         {std::pair{"/mean", Reduction::mean}, {"/sum", Reduction::sum}, {"/none", Reduction::none}}) {
      const std::string name = c.name + suffix;
      const Variable x = input(name + "/x", {5, 7}, c.scale, c.offset);
      const Variable target = input(name + "/target", {5, 7}, c.target_scale, c.target_offset);
      const Variable y = c.op(x, target, reduction);
      expect_parity(name, reshape(y, {y.shape().numel()}), {{"x", x}, {"target", target}});
    }
}

INSTANTIATE_TEST_SUITE_P(, LossesParity, ::testing::Values(DType::f32, DType::f64),
                         [](const auto& each) { return std::string(to_string(each.param)); });

}  // namespace
}  // namespace convoy::testing
