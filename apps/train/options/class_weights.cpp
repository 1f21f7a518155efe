#include "convoy/apps/train/options/class_weights.h"

#include <charconv>
#include <cmath>
#include <fstream>

#include "convoy/datasets/formats/class_directories.h"
#include "convoy/kernels/base/check.h"

namespace convoy {

std::map<std::string, double> read_class_weights(const std::string& file) {
  std::ifstream in(file);
  check(in.is_open(), "--class-weights: found '{}', expected none, balanced, or a file", file);
  std::map<std::string, double> weights;
  int number = 0;
  for (std::string line; std::getline(in, line);) {
    ++number;
    if (line.ends_with('\r')) line.pop_back();
    if (line.empty() || line.starts_with('#')) continue;
    double weight = 0;
    const char* const end = line.data() + line.size();
    const auto [stop, problem] = std::from_chars(line.data(), end, weight);
    const bool is_valid =
        problem == std::errc() && end - stop >= 2 && *stop == ' ' && weight >= 0 && std::isfinite(weight);
    check(
        is_valid && weights.emplace(std::string(stop + 1, end), weight).second,
        "--class-weights {}, line {}: found '{}', expected the weight (0 or more), a blank and the name of a class "
        "that no other line has",
        file, number, line);
  }
  return weights;
}

std::string class_weights_text(const std::string& file) {
  std::string text;
  if (file == "none" || file == "balanced") return text;
  for (const auto& [name, weight] : read_class_weights(file))
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", weight, name);
  return text;
}

Tensor class_weights(const std::string& text, const data::DataSet& data, const DeviceContext& device,
                     DType dtype) {
  if (text == "none") return {};
  const std::vector<std::int64_t> counts = data::class_counts(data.train, data.classes.size());
  std::vector<double> weights;
  if (text == "balanced") {
    for (const std::int64_t count : counts) weights.push_back(count > 0 ? 1 / static_cast<double>(count) : 0);
  } else {
    const std::map<std::string, double> by_name = read_class_weights(text);
    std::vector<std::string> names;
    for (const auto& [name, weight] : by_name) names.push_back(name);
    const std::string missing = data::names_missing(names, data.classes),
                      unknown = data::names_missing(data.classes, names);
    check(
        missing == "none" && unknown == "none",
        "--class-weights {}: missing classes: {}; unknown classes: {}; expected one line per class of the data set",
        text, missing, unknown);
    for (const std::string& name : data.classes) weights.push_back(by_name.at(name));
  }
  double sum = 0;
  for (std::size_t c = 0; c < weights.size(); ++c) sum += weights[c] * static_cast<double>(counts[c]);
  check(sum > 0, "--class-weights {}: all training images have the weight 0, expected some with more", text);
  for (double& weight : weights) weight *= static_cast<double>(data.train.size()) / sum;
  return Tensor::from(weights, {std::ssize(weights)}, Device::cpu()).to(dtype).to(device);
}

}  // namespace convoy
