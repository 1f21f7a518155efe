// A language model of characters: reads a text, learns to predict each next byte, and writes text of its own.
//
//   char_model [text file, default README.md] [optimizer steps, default 2000]
//
// The last tenth of the text is not trained on. The loss on it, in bits per byte, says how well the model
// would compress such text: 8 is chance, and gzip reaches about 3 on English.
#include <convoy/convoy.h>
#include <fmt/format.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <numbers>
#include <random>
#include <string>
#include <string_view>

using namespace convoy;

namespace {

constexpr int kBytes = 256, kContext = 64, kWidth = 64, kHeads = 4, kDepth = 2;
constexpr std::int64_t kBatchSize = 32;

/// Maps bytes, i32 [N, T], to the logits of the bytes that follow them, [N, T, 256].
class CharModel final : public nn::Module {
 public:
  CharModel()
      : bytes_(add_child("bytes", nn::Embedding(kBytes, kWidth))),
        norm_(add_child("norm", nn::LayerNorm({kWidth}))),
        head_(add_child("head", nn::Linear(kWidth, kBytes))) {
    positions_ =
        add_parameter("positions", {kContext, kWidth}, nn::ParameterKind::weight, Init::normal(0.02));
    for (int i = 0; i < kDepth; ++i)
      layers_.push_back(
          add_child("layers." + std::to_string(i),
                    nn::TransformerEncoderLayer(kWidth, kHeads, {.hidden = 4 * kWidth, .causal = true})));
  }
  std::string describe() const override { return "CharModel"; }

 private:
  Variable forward(const Variable& text, const nn::ForwardContext& context) override {
    Variable x = bytes_(text, context) + slice(positions_, 0, 0, text.shape()[1]);
    for (const nn::Layer& layer : layers_) x = layer(x, context);
    return head_(norm_(x, context), context);
  }

  nn::Layer bytes_, norm_, head_;
  Variable positions_;
  std::vector<nn::Layer> layers_;
};

/// Returns the mean loss, in nats, of predicting the byte after each byte of these pieces of text.
Variable loss_of(nn::Module& model, const std::vector<std::int32_t>& text,
                 const std::vector<std::size_t>& begins, const nn::ForwardContext& context,
                 const DeviceContext& device) {
  std::vector<std::int32_t> bytes, next;
  for (const std::size_t begin : begins)
    for (std::size_t i = begin; i < begin + kContext; ++i) {
      bytes.push_back(text[i]);
      next.push_back(text[i + 1]);
    }
  const auto count = static_cast<std::int64_t>(begins.size());
  const Variable logits = model(Tensor::from(bytes, {count, kContext}, device), context);
  const Tensor labels = Tensor::from(next, {count * kContext}, device);
  return cross_entropy_sum(reshape(logits, {count * kContext, kBytes}), labels) /
         static_cast<double>(count * kContext);
}

/// Returns bits per byte on the text from `begin` to its end.
double bits_per_byte(nn::Module& model, const std::vector<std::int32_t>& text, std::size_t begin,
                     const DeviceContext& device) {
  const NoGrad no_grad;
  std::vector<std::size_t> begins;
  for (std::size_t i = begin; i + kContext < text.size(); i += kContext) begins.push_back(i);
  return loss_of(model, text, begins, nn::ForwardContext::inference(), device).value().item() /
         std::numbers::ln2;
}

/// Continues a text by `count` bytes, each drawn from the distribution that the model predicts.
std::string write_text(nn::Module& model, std::string text, int count, const DeviceContext& device) {
  const NoGrad no_grad;
  std::mt19937 random(1);
  for (int i = 0; i < count; ++i) {
    const std::size_t begin = text.size() > kContext ? text.size() - kContext : 0;
    std::vector<std::int32_t> bytes;
    for (const char each : text.substr(begin)) bytes.push_back(static_cast<unsigned char>(each));
    const auto length = static_cast<std::int64_t>(bytes.size());
    const Variable logits = model(Tensor::from(bytes, {1, length}, device));
    const auto chances = softmax(slice(logits, 1, length - 1, length)).value().to_vector<float>();
    text += static_cast<char>(std::discrete_distribution<int>(chances.begin(), chances.end())(random));
  }
  return text;
}

void train(const std::string& file, int steps) {
  const DeviceContext device = Device::best();
  std::ifstream stream(file, std::ios::binary);
  std::vector<std::int32_t> text;
  for (char each = 0; stream.get(each);) text.push_back(static_cast<unsigned char>(each));
  const std::size_t trained = text.size() * 9 / 10;
  check(text.size() - trained > 2 * kContext, "{}: found {} bytes, expected at least {}", file, text.size(),
        20 * kContext + 20);
  CharModel model;
  model.to(device);
  optim::Adam optimizer(optim::decay_groups(model.parameters(), 0.1), {.decoupled = true});
  const optim::Schedule rate = optim::cosine({.peak = 3e-3, .steps = steps, .warmup = steps / 10});
  std::mt19937 random(1);
  std::uniform_int_distribution<std::size_t> place(0, trained - kContext - 1);
  for (int step = 1; step <= steps; ++step) {
    std::vector<std::size_t> begins(kBatchSize);
    for (std::size_t& begin : begins) begin = place(random);
    const Variable loss = loss_of(model, text, begins, {.training = true}, device);
    backward(loss);
    optimizer.step(rate(step - 1), {.clip_norm = 1.0});
    if (step == 1 || step % 100 == 0)
      fmt::print("step {}/{}  loss {:.3f}, {:.2f} bits per byte\n", step, steps, loss.value().item(),
                 loss.value().item() / std::numbers::ln2);
  }
  fmt::print("{:.2f} bits per byte on the last tenth of the text; its first {} bytes, continued:\n{}\n",
             bits_per_byte(model, text, trained, device), kContext,
             write_text(model,
                        std::string(text.begin() + static_cast<std::ptrdiff_t>(trained),
                                    text.begin() + static_cast<std::ptrdiff_t>(trained) + kContext),
                        200, device));
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1 && argv[1][0] == '-') {
    fmt::print("usage: char_model [text file, default README.md] [steps, default 2000]\n");
    return std::string_view(argv[1]) == "--help" ? 0 : 2;
  }
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  try {
    train(argc > 1 ? argv[1] : "README.md", argc > 2 ? std::atoi(argv[2]) : 2000);
    return 0;
  } catch (const Error& error) {
    fmt::print(stderr, "char_model: error: {}\n", error.what());
    return static_cast<int>(error.code());
  }
}
