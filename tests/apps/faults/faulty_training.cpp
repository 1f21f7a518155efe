// convoy-train with a network that does harm in one step, if CONVOY_TEST_FAULT says which: tests set it on one rank.
#include <sys/resource.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <string>

#include "convoy/apps/programs/programs.h"
#include "convoy/engine/nn/layers.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/elementwise.h"

namespace convoy {
namespace {

constexpr int kFaultyStep = 5;

/// Limits the memory of this process to what it has now, and asks for more.
void run_out_of_memory() {
  std::size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  rlimit limit{};
  getrlimit(RLIMIT_AS, &limit);
  limit.rlim_cur = pages * 4096;
  setrlimit(RLIMIT_AS, &limit);
  Tensor::zeros({std::int64_t{1} << 30}, DType::f32, Device::cpu());
}

/// A layer without parameters that passes its input on, except in the step of the fault.
class Fault final : public nn::Module {
 public:
  explicit Fault(std::weak_ptr<nn::Module>& network) : network_(network) {
    if (const char* const kind = std::getenv("CONVOY_TEST_FAULT")) kind_ = kind;
  }

 private:
  Variable forward(const Variable& x, const nn::ForwardContext& context) override {
    if (context.training) ++step_;
    if (step_ != kFaultyStep) return x;
    const std::shared_ptr<nn::Module> network = network_.lock();
    if (!context.training) {
      if (kind_ == "memory in evaluation") run_out_of_memory();
      return x;
    }
    if (kind_ == "forward") fail<DataError>("the images of step {} are damaged", step_);
    if (kind_ == "abort in forward") std::abort();
    if (kind_ == "memory in forward") run_out_of_memory();
    if (kind_ == "flipped bit")
      *network->parameters().front().variable.value().view().as<std::uint32_t>() ^= 1U;
    return record("fault", x.value().clone(), {x}, [=, this](const Tensor& dy, std::span<GradSlot> dx) {
      if (kind_ == "backward") fail<DataError>("the gradients of step {} are damaged", step_);
      if (kind_ == "NaN gradient")
        on(dy.stream(),
           [&](auto& s) { kernels::fill(s, std::numeric_limits<double>::quiet_NaN(), dy.view()); });
      dx[0].alias_or_accumulate(dy);
      if (kind_ == "optimizer") network->to(DType::f64);  // the optimizer refuses parameters of another type
    });
  }

  std::weak_ptr<nn::Module>& network_;
  std::string kind_;
  int step_ = 0;
};

models::Model make_faulty(const models::Options& options) {
  static std::weak_ptr<nn::Module> network;
  const auto pixels = static_cast<int>(options.input[0] * options.input[1] * options.input[2]);
  const auto net = std::make_shared<nn::Sequential>(
      std::vector<nn::Layer>{{"flatten", std::make_shared<nn::Flatten>()},
                             {"first", std::make_shared<nn::Linear>(pixels, 64)},
                             {"relu", std::make_shared<nn::Activation>(nn::ActivationKind::relu)},
                             {"fault", std::make_shared<Fault>(network)},
                             {"last", std::make_shared<nn::Linear>(64, options.classes)}});
  network = net;
  return {"faulty", net, options.input, options.seed, options.device};
}

}  // namespace
}  // namespace convoy

int main(int argc, char** argv) {
  convoy::models::add({.name = "faulty", .make = convoy::make_faulty});
  return convoy::run_program(argc, argv);
}
