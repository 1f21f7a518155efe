#include "tests/onnx/onnx_file.h"

#include <cstring>
#include <stdexcept>

namespace convoy::testing {
namespace {

[[noreturn]] void fail(const std::string& what) { throw std::runtime_error("onnx: " + what); }

/// A field of a message: `value` of types 0 and 5, `bytes` of type 2.
struct Field {
  std::uint64_t number = 0, wire_type = 0, value = 0;
  std::string_view bytes;

  float as_float() const {
    const auto bits = static_cast<std::uint32_t>(value);
    float number_value = 0;
    std::memcpy(&number_value, &bits, sizeof bits);
    return number_value;
  }
  std::string text() const { return std::string(bytes); }
};

std::uint64_t take_varint(std::string_view& bytes) {
  std::uint64_t value = 0;
  for (unsigned shift = 0; shift < 64; shift += 7) {
    if (bytes.empty()) fail("a truncated number");
    const auto byte = static_cast<unsigned char>(bytes.front());
    bytes.remove_prefix(1);
    value |= std::uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return value;
  }
  fail("a number of more than 64 bits");
}

std::vector<Field> fields_of(std::string_view bytes) {
  std::vector<Field> fields;
  while (!bytes.empty()) {
    const std::uint64_t tag = take_varint(bytes);
    Field field{.number = tag >> 3, .wire_type = tag & 7, .value = 0, .bytes = {}};
    if (field.wire_type == 0) {
      field.value = take_varint(bytes);
    } else if (field.wire_type == 2) {
      const std::uint64_t length = take_varint(bytes);
      if (length > bytes.size()) fail("a truncated field");
      field.bytes = bytes.substr(0, length);
      bytes.remove_prefix(length);
    } else if (field.wire_type == 5) {
      if (bytes.size() < 4) fail("a truncated float");
      for (unsigned i = 0; i < 4; ++i)
        field.value |= std::uint64_t{static_cast<unsigned char>(bytes[i])} << (8 * i);
      bytes.remove_prefix(4);
    } else {
      fail("wire type " + std::to_string(field.wire_type));
    }
    fields.push_back(field);
  }
  return fields;
}

[[noreturn]] void refuse(const char* message, const Field& field) {
  fail(std::string(message) + ": unexpected field " + std::to_string(field.number));
}

OnnxTensor read_tensor(std::string_view bytes, std::string& name) {
  OnnxTensor tensor;
  std::string_view raw;
  std::uint64_t type = 0;
  for (const Field& field : fields_of(bytes)) {
    if (field.number == 1)
      tensor.shape.push_back(static_cast<std::int64_t>(field.value));
    else if (field.number == 2)
      type = field.value;
    else if (field.number == 8)
      name = field.text();
    else if (field.number == 9)
      raw = field.bytes;
    else
      refuse("TensorProto", field);
  }
  if (type != 1 && type != 7) fail(name + " has type " + std::to_string(type) + ", expected FLOAT or INT64");
  const std::size_t size_of_value = type == 1 ? 4 : 8;
  std::size_t count = 1;
  for (const std::int64_t size : tensor.shape) count *= static_cast<std::size_t>(size);
  if (raw.size() != size_of_value * count) fail(name + " has another number of bytes than its shape");
  for (std::size_t i = 0; i < count; ++i) {
    float number = 0;
    std::int64_t integer = 0;
    if (type == 1)
      std::memcpy(&number, raw.data() + 4 * i, 4);
    else
      std::memcpy(&integer, raw.data() + 8 * i, 8);
    tensor.values.push_back(type == 1 ? static_cast<double>(number) : static_cast<double>(integer));
  }
  return tensor;
}

OnnxNode read_node(std::string_view bytes) {
  OnnxNode node;
  for (const Field& field : fields_of(bytes)) {
    if (field.number == 1)
      node.inputs.push_back(field.text());
    else if (field.number == 2)
      node.outputs.push_back(field.text());
    else if (field.number == 4)
      node.type = field.text();
    else if (field.number == 5) {
      std::string name;
      std::uint64_t type = 0;
      for (const Field& part : fields_of(field.bytes)) {
        if (part.number == 1)
          name = part.text();
        else if (part.number == 2)
          node.floats[name] = part.as_float();
        else if (part.number == 3)
          node.integers[name] = static_cast<std::int64_t>(part.value);
        else if (part.number == 8)
          node.lists[name].push_back(static_cast<std::int64_t>(part.value));
        else if (part.number == 20)
          type = part.value;
        else
          refuse("AttributeProto", part);
      }
      const std::uint64_t expected = node.floats.count(name) != 0     ? 1
                                     : node.integers.count(name) != 0 ? 2
                                                                      : 7;
      if (type != expected) fail("attribute " + name + " has type " + std::to_string(type));
    } else if (field.number != 3) {
      refuse("NodeProto", field);
    }
  }
  return node;
}

/// Adds the shape of a ValueInfoProto to `shapes`.
void read_value(std::string_view bytes, std::map<std::string, std::vector<std::string>>& shapes) {
  std::string name;
  std::vector<std::string> shape;
  for (const Field& field : fields_of(bytes)) {
    if (field.number == 1) name = field.text();
    if (field.number != 2) continue;
    for (const Field& type : fields_of(field.bytes))
      for (const Field& part : fields_of(type.bytes)) {
        if (part.number == 1 && part.value != 1) fail(name + " is not of type FLOAT");
        if (part.number != 2) continue;
        for (const Field& axis : fields_of(part.bytes))
          for (const Field& size : fields_of(axis.bytes))
            shape.push_back(size.number == 1 ? std::to_string(size.value) : size.text());
      }
  }
  shapes[name] = shape;
}

void read_graph(std::string_view bytes, OnnxFile& file) {
  for (const Field& field : fields_of(bytes)) {
    std::string name;
    switch (field.number) {
      case 1: file.nodes.push_back(read_node(field.bytes)); break;
      case 2: file.graph_name = field.text(); break;
      case 5: {
        OnnxTensor tensor = read_tensor(field.bytes, name);
        if (!file.constants.emplace(name, std::move(tensor)).second) fail(name + " occurs twice");
        break;
      }
      case 11: read_value(field.bytes, file.inputs); break;
      case 12: read_value(field.bytes, file.outputs); break;
      default: refuse("GraphProto", field);
    }
  }
}

}  // namespace

OnnxFile read_onnx(std::string_view bytes) {
  OnnxFile file;
  for (const Field& field : fields_of(bytes)) {
    switch (field.number) {
      case 1: file.ir_version = static_cast<std::int64_t>(field.value); break;
      case 2: file.producer = field.text(); break;
      case 3: break;  // the version of the producer
      case 7: read_graph(field.bytes, file); break;
      case 8:
        for (const Field& part : fields_of(field.bytes))
          if (part.number == 2) file.opset = static_cast<std::int64_t>(part.value);
        break;
      case 14: {
        std::string key, value;
        for (const Field& part : fields_of(field.bytes)) (part.number == 1 ? key : value) = part.text();
        file.metadata[key] = value;
        break;
      }
      default: refuse("ModelProto", field);
    }
  }
  return file;
}

}  // namespace convoy::testing
