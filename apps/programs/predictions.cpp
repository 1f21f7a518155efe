#include "convoy/apps/programs/predictions.h"

#include <bit>
#include <nlohmann/json.hpp>

#include "convoy/apps/common/text.h"
#include "convoy/kernels/base/check.h"
#include "convoy/kernels/base/json_text.h"

namespace convoy {

std::string to_json(const std::vector<Prediction>& predictions, const PredictionSource& source) {
  std::string text = "[";
  for (const Prediction& prediction : predictions) {
    nlohmann::ordered_json record;
    set_path(record, "path", prediction.path);
    record["model"] = source.model;
    set_path(record, "checkpoint", source.checkpoint);
    nlohmann::ordered_json& classes = record["predictions"] = nlohmann::ordered_json::array();
    for (const auto& [label, probability] : prediction.top)
      classes.push_back({{"class", source.classes[label]}, {"label", label}, {"probability", probability}});
    text += text == "[" ? "\n" : ",\n";
    text += json_text(record);
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

std::string encode_npy(const Tensor& tensor) {
  static_assert(std::endian::native == std::endian::little, "the header declares little-endian data");
  check(tensor.dtype() == DType::f32 || tensor.dtype() == DType::f64, "npy: found {}, expected f32 or f64",
        to_string(tensor.dtype()));
  std::string shape;
  for (const std::int64_t size : tensor.shape().sizes()) shape += fmt::format("{}, ", size);
  std::string header = fmt::format("{{'descr': '<f{}', 'fortran_order': False, 'shape': ({}), }}",
                                   size_of(tensor.dtype()), shape);
  // Magic, version and header length take 10 bytes. Padding makes the data start at a multiple of 64 bytes.
  constexpr std::size_t kPrefix = 10;
  header.append((64 - (kPrefix + header.size() + 1) % 64) % 64, ' ');
  header += '\n';
  std::string bytes("\x93NUMPY\x01\x00", 8);
  bytes += static_cast<char>(header.size() & 0xff);
  bytes += static_cast<char>(header.size() >> 8);
  bytes += header;
  const Tensor host = tensor.to(Device::cpu());
  if (host.numel() > 0) bytes.append(static_cast<const char*>(host.view().data), host.bytes());
  return bytes;
}

}  // namespace convoy
