// A complete training: images, a model with 650 weights, a loss, steps, and a test. Without a library.
//
//   training [rate, default 0.1] [momentum, default 0]   or   training --batch   or   training --json
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

const int kPixels = 64, kClasses = 10, kBatch = 50;

// A linear congruential generator: the same numbers on each machine.
double uniform() {
  static unsigned state = 1;
  state = state * 1664525u + 1013904223u;
  return (state >> 8) / 16777216.0;
}

struct Image {
  double pixel[kPixels];
  int label;
};

// A digit of seven segments in 8 x 8 pixels, moved by up to one pixel, with noise.
Image draw(int digit) {
  const int segments[] = {0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f};
  const struct {
    int row, column, rows, columns;
  } places[] = {{0, 0, 1, 4}, {0, 3, 4, 1}, {3, 3, 4, 1}, {6, 0, 1, 4},
                {3, 0, 4, 1}, {0, 0, 4, 1}, {3, 0, 1, 4}};
  Image image;
  image.label = digit;
  for (double& pixel : image.pixel) pixel = uniform() - 0.5;
  const int down = static_cast<int>(2 * uniform()), right = 1 + static_cast<int>(3 * uniform());
  for (int segment = 0; segment < 7; ++segment)
    for (int i = 0; (segments[digit] >> segment & 1) != 0 && i < places[segment].rows; ++i)
      for (int j = 0; j < places[segment].columns; ++j)
        image.pixel[(places[segment].row + down + i) * 8 + places[segment].column + right + j] += 1;
  return image;
}

struct Model {
  std::vector<double> weight = std::vector<double>(kClasses * kPixels, 0),
                      bias = std::vector<double>(kClasses, 0);
};

// One number per class: the larger, the more the image looks like it.
std::vector<double> forward(const Model& model, const Image& image) {
  std::vector<double> logits = model.bias;
  for (int k = 0; k < kClasses; ++k)
    for (int i = 0; i < kPixels; ++i) logits[k] += model.weight[k * kPixels + i] * image.pixel[i];
  return logits;
}

// Returns the loss. Replaces the logits by the derivatives of the loss with respect to them.
double cross_entropy(std::vector<double>& logits, int label) {
  double sum = 0;
  for (double logit : logits) sum += std::exp(logit);
  const double loss = std::log(sum) - logits[label];
  for (int k = 0; k < kClasses; ++k) logits[k] = std::exp(logits[k]) / sum - (k == label ? 1 : 0);
  return loss;
}

// Adds the gradients of one image, divided by the number of images of the batch.
void backward(const std::vector<double>& d_logits, const Image& image, Model& gradient) {
  for (int k = 0; k < kClasses; ++k) {
    gradient.bias[k] += d_logits[k] / kBatch;
    for (int i = 0; i < kPixels; ++i)
      gradient.weight[k * kPixels + i] += d_logits[k] * image.pixel[i] / kBatch;
  }
}

double step(Model& model, Model& velocity, const Image* batch, double rate, double momentum) {
  Model gradient;
  double loss = 0;
  for (int i = 0; i < kBatch; ++i) {
    std::vector<double> logits = forward(model, batch[i]);
    loss += cross_entropy(logits, batch[i].label) / kBatch;
    backward(logits, batch[i], gradient);
  }
  const auto update = [&](std::vector<double>& w, std::vector<double>& v, const std::vector<double>& g) {
    for (std::size_t i = 0; i < w.size(); ++i) {
      v[i] = momentum * v[i] + g[i];
      w[i] -= rate * v[i];
    }
  };
  update(model.weight, velocity.weight, gradient.weight);
  update(model.bias, velocity.bias, gradient.bias);
  return loss;
}

int right_of(const Model& model, const std::vector<Image>& images) {
  int right = 0;
  for (const Image& image : images) {
    const std::vector<double> logits = forward(model, image);
    right += std::max_element(logits.begin(), logits.end()) - logits.begin() == image.label;
  }
  return right;
}

struct Result {
  std::vector<double> losses;  // of each step
  std::vector<int> right;      // of the test images, after each epoch
};

Result train(const std::vector<Image>& images, const std::vector<Image>& test, double rate, double momentum,
             int steps, bool is_one_batch) {
  Model model, velocity;
  Result result;
  const int steps_per_epoch = static_cast<int>(images.size()) / kBatch;
  for (int i = 0; i < steps; ++i) {
    const Image* const batch = &images[is_one_batch ? 0 : i % steps_per_epoch * kBatch];
    result.losses.push_back(step(model, velocity, batch, rate, momentum));
    if ((i + 1) % steps_per_epoch == 0) result.right.push_back(right_of(model, test));
  }
  return result;
}

int main(int count, char** arguments) {
  std::vector<Image> images, test;
  for (int i = 0; i < 2000; ++i) images.push_back(draw(i % 10));
  for (int i = 0; i < 1000; ++i) test.push_back(draw(i % 10));
  const std::string first = count > 1 ? arguments[1] : "0.1";
  if (first == "--json") {
    std::printf("{");
    for (const char* rate : {"0.01", "0.1", "2", "10"}) {
      const Result result = train(images, test, std::atof(rate), 0, 200, false);
      std::printf("%s\"%s\": {\"right\": %d, \"losses\": [", rate == std::string("0.01") ? "" : ",\n", rate,
                  result.right.back());
      for (int i = 0; i < 200; i += 10) {
        double mean = 0;
        for (int j = i; j < i + 10; ++j) mean += result.losses[j] / 10;
        std::printf("%s%.2f", i == 0 ? "" : ", ", std::min(mean, 9.99));
      }
      std::printf("]}");
    }
    std::printf(",\n\"bytes\": {\"images\": %d, \"logits\": %d, \"weights\": %d}, \"ln_10\": %.2f}\n",
                4 * kBatch * kPixels, 4 * kBatch * kClasses, 4 * (kClasses * kPixels + kClasses),
                std::log(10.0));
    return 0;
  }
  const bool is_one_batch = first == "--batch";
  const double rate = is_one_batch ? 1 : std::atof(first.c_str()),
               momentum = count > 2 ? std::atof(arguments[2]) : 0;
  const Result result = train(images, test, rate, momentum, 200, is_one_batch);
  for (int i = 0; i < 200; i += i < 100 ? 50 : 99)
    std::printf("step %3d: loss %.2f\n", i + 1, result.losses[i]);
  if (is_one_batch) return 0;
  for (std::size_t epoch = 0; epoch < result.right.size(); ++epoch)
    std::printf("epoch %zu: %d of %zu test images right\n", epoch + 1, result.right[epoch], test.size());
}
