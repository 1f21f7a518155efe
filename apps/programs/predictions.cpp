#include "convoy/apps/programs/predictions.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "convoy/apps/common/text.h"

namespace convoy {

std::string to_json(const std::vector<Prediction>& predictions, const PredictionSource& source) {
  std::string text = "[";
  for (const Prediction& prediction : predictions) {
    nlohmann::ordered_json record{
        {"path", prediction.path}, {"model", source.model}, {"checkpoint", source.checkpoint}};
    nlohmann::ordered_json& classes = record["predictions"] = nlohmann::ordered_json::array();
    for (const auto& [label, probability] : prediction.top)
      classes.push_back({{"class", source.classes[label]}, {"label", label}, {"probability", probability}});
    text += text == "[" ? "\n" : ",\n";
    text += record.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }
  return text + "\n]\n";
}

std::string to_csv(const std::vector<Prediction>& predictions, const PredictionSource& source) {
  std::string text = "path,model,checkpoint";
  const std::size_t count = predictions.empty() ? 0 : predictions.front().top.size();
  for (std::size_t i = 1; i <= count; ++i) text += fmt::format(",class_{},probability_{}", i, i);
  text += kCsvLineEnd;
  for (const Prediction& prediction : predictions) {
    text += fmt::format("{},{},{}", csv_field(prediction.path), csv_field(source.model),
                        csv_field(source.checkpoint));
    for (const auto& [label, probability] : prediction.top)
      text += fmt::format(",{},{}", csv_field(source.classes[label]), probability);
    text += kCsvLineEnd;
  }
  return text;
}

}  // namespace convoy
