// The graph of an ONNX file, in the encoding of Protocol Buffers. Field numbers are those of
// https://github.com/onnx/onnx/blob/main/onnx/onnx.proto3.
#pragma once

#include <bit>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <unordered_set>
#include <vector>

#include "convoy/engine/io/onnx.h"
#include "convoy/engine/tensor/tensor.h"
#include "convoy/kernels/base/check.h"
#include "convoy/version.h"

namespace convoy::io {

/// A message in the encoding of Protocol Buffers (https://protobuf.dev/programming-guides/encoding), to which fields are appended by their numbers. A repeated field is appended several times.
/// The functions return the message itself.
class ProtobufMessage {
 public:
  /// Appends an int64, an int32 or an enum.
  ProtobufMessage& integer(int field, std::int64_t value) {
    tag(field, WireType::varint);
    varint(static_cast<std::uint64_t>(value));
    return *this;
  }
  /// Appends a float.
  ProtobufMessage& number(int field, float value) {
    tag(field, WireType::fixed32);
    const auto bits = std::bit_cast<std::uint32_t>(value);
    for (int shift = 0; shift < 32; shift += 8) bytes_ += static_cast<char>(bits >> shift);
    return *this;
  }
  /// Appends a string, which must be UTF-8, or bytes.
  ProtobufMessage& bytes(int field, std::string_view value) {
    tag(field, WireType::length_delimited);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  /// Appends a message.
  ProtobufMessage& message(int field, const ProtobufMessage& value) { return bytes(field, value.bytes_); }

  /// Returns the encoded fields.
  const std::string& encoded() const { return bytes_; }

 private:
  enum class WireType : std::uint8_t { varint = 0, length_delimited = 2, fixed32 = 5 };
  void tag(int field, WireType type) {
    varint(static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
  }
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

/// The graph of an ONNX file. Functions that add a node return the name of its result.
class OnnxGraph {
 public:
  using Names = std::vector<std::string>;
  /// An attribute of a node: a float, an integer, or a list of integers.
  struct Attribute {
    ProtobufMessage message;

    Attribute(std::string_view name, float value) { message.bytes(1, name).number(2, value).integer(20, 1); }
    Attribute(std::string_view name, std::int64_t value) {
      message.bytes(1, name).integer(3, value).integer(20, 2);
    }
    Attribute(std::string_view name, const std::vector<std::int64_t>& values) {
      message.bytes(1, name);
      for (const std::int64_t value : values) message.integer(8, value);
      message.integer(20, 7);
    }
  };

  std::string node(const char* type, const Names& inputs, const std::vector<Attribute>& attributes = {},
                   const std::string& output = "") {
    const std::string name = fmt::format("{}_{}", type, ++nodes_);
    const std::string result = output.empty() ? name : output;
    ProtobufMessage message;
    for (const std::string& input : inputs) message.bytes(1, input);
    message.bytes(2, result).bytes(3, name).bytes(4, type);
    for (const Attribute& attribute : attributes) message.message(5, attribute.message);
    graph_.message(1, message);
    return result;
  }
  /// Adds a constant from a host tensor, unless there is one with this name.
  std::string constant(const std::string& name, const Tensor& value) {
    return constant(name, value.shape().sizes(), value.to(DType::f32).to_vector<float>());
  }
  std::string scalar(double value) {
    return constant(fmt::format("constant_{}", static_cast<float>(value)), {},
                    std::vector{static_cast<float>(value)});
  }
  /// Adds a list, such as the shape for the operator Reshape.
  std::string integers(const std::vector<std::int64_t>& values) {
    return constant(fmt::format("constant_integers_{}", fmt::join(values, "_")),
                    std::vector{std::ssize(values)}, values);
  }
  template <class T>
  std::string constant(const std::string& name, std::span<const std::int64_t> shape,
                       const std::vector<T>& values) {
    static_assert(std::endian::native == std::endian::little, "raw data is little-endian");
    if (!constants_.insert(name).second) return name;
    ProtobufMessage tensor;
    for (const std::int64_t size : shape) tensor.integer(1, size);
    tensor.integer(2, std::is_same_v<T, float> ? kFloat : kInt64).bytes(8, name);
    tensor.bytes(9, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)});
    graph_.message(5, tensor);
    return name;
  }
  /// Declares the input (field 11) or the output (field 12) with this shape of one sample.
  void declare(int field, const std::string& name, std::span<const std::int64_t> sample) {
    ProtobufMessage shape;
    shape.message(1, ProtobufMessage().bytes(2, "N"));
    for (const std::int64_t size : sample) shape.message(1, ProtobufMessage().integer(1, size));
    const ProtobufMessage type =
        ProtobufMessage().message(1, ProtobufMessage().integer(1, kFloat).message(2, shape));
    graph_.message(field, ProtobufMessage().bytes(1, name).message(2, type));
  }

  std::string file(const OnnxOptions& options) {
    graph_.bytes(2, options.name);
    ProtobufMessage model;
    constexpr int kOnnxFormat = 8;  // the version of the format that belongs to the operators
    model.integer(1, kOnnxFormat).bytes(2, "Convoy").bytes(3, kVersion).message(7, graph_);
    model.message(8, ProtobufMessage().bytes(1, "").integer(2, kOnnxOpset));
    for (const auto& [key, value] : options.metadata)
      model.message(14, ProtobufMessage().bytes(1, key).bytes(2, value));
    constexpr std::size_t kMaxBytes = (std::size_t{1} << 31) - 1;
    check(model.encoded().size() <= kMaxBytes,
          "onnx: found {} bytes, expected at most {}, the limit of the format", model.encoded().size(),
          kMaxBytes);
    return model.encoded();
  }

 private:
  static constexpr std::int64_t kFloat = 1, kInt64 = 7;  // TensorProto.DataType
  ProtobufMessage graph_;
  int nodes_ = 0;
  std::unordered_set<std::string> constants_;
};

}  // namespace convoy::io
