#include "tests/cuda_emulator/vendor/cudnn_descriptor.h"

#include <algorithm>

#include "tests/cuda_emulator/vendor/cudnn_rules.h"

namespace convoy::emulator {
namespace {

std::size_t size_of(cudnnBackendAttributeType_t type) {
  switch (type) {
    case CUDNN_TYPE_BOOLEAN: return sizeof(bool);
    case CUDNN_TYPE_CHAR: return sizeof(char);
    case CUDNN_TYPE_INT64: return sizeof(std::int64_t);
    case CUDNN_TYPE_FLOAT: return sizeof(float);
    case CUDNN_TYPE_DOUBLE: return sizeof(double);
    case CUDNN_TYPE_HANDLE:
    case CUDNN_TYPE_VOID_PTR:
    case CUDNN_TYPE_BACKEND_DESCRIPTOR: return sizeof(void*);
    default: return sizeof(int);  // the enums
  }
}

const AttributeRule& rule_of(const Descriptor& descriptor, cudnnBackendAttributeName_t name) {
  for (const AttributeRule& rule : rules_of(descriptor.type))
    if (rule.name == name) return rule;
  refuse(CUDNN_STATUS_BAD_PARAM, to_string(descriptor.type) + " has no " + to_string(name));
}

void check_type(const AttributeRule& rule, cudnnBackendAttributeType_t type) {
  // Scalars may have either precision.
  const bool fits = type == rule.type || (rule.type == CUDNN_TYPE_FLOAT && type == CUDNN_TYPE_DOUBLE);
  if (!fits) refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, to_string(rule.name) + " has another type");
}

DescriptorPtr nested_from(const AttributeRule& rule, const void* given) {
  const DescriptorPtr nested = descriptors().find(given);
  if (std::find(rule.nested.begin(), rule.nested.end(), nested->type) == rule.nested.end())
    refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
           to_string(rule.name) + " cannot be a " + to_string(nested->type));
  if (!nested->is_finalized)
    refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, to_string(rule.name) + ": not finalized");
  return nested;
}

/// Copies descriptor `from` to the descriptor that the caller passed.
void fill(const AttributeRule& rule, const Descriptor& from, const void* given) {
  const DescriptorPtr to = descriptors().find(given);
  if (to->type != from.type)
    refuse(CUDNN_STATUS_BAD_PARAM_DESCRIPTOR_TYPE,
           to_string(rule.name) + ": expected a descriptor of type " + to_string(from.type));
  require(!to->is_finalized, to_string(rule.name) + ": the descriptor is already finalized");
  to->attributes = from.attributes;
  to->object = from.object;
  to->is_finalized = true;
}

}  // namespace

void refuse(cudnnStatus_t status, const std::string& why) { throw CudnnRefusal{status, why}; }

void require(bool condition, const std::string& why) {
  if (!condition) refuse(CUDNN_STATUS_BAD_PARAM, why);
}

double Descriptor::number(cudnnBackendAttributeName_t name, double default_value) const {
  const auto found = attributes.find(name);
  if (found == attributes.end()) return default_value;
  return found->second.type == CUDNN_TYPE_DOUBLE ? value<double>(name) : value<float>(name);
}

void Descriptor::put(cudnnBackendAttributeName_t name, std::vector<DescriptorPtr> elements) {
  const auto count = static_cast<std::int64_t>(elements.size());
  attributes[name] = {
      .type = CUDNN_TYPE_BACKEND_DESCRIPTOR, .count = count, .descriptors = std::move(elements)};
}

#define CONVOY_NAME(constant, value) \
  case constant: return #constant;

std::string to_string(cudnnBackendDescriptorType_t type) {
  switch (type) { CONVOY_CUDNN_DESCRIPTOR_TYPES(CONVOY_NAME) }
  return "an unknown descriptor";
}

std::string to_string(cudnnBackendAttributeName_t name) {
  switch (name) { CONVOY_CUDNN_ATTRIBUTE_NAMES(CONVOY_NAME) }
  return "an unknown attribute";
}

#undef CONVOY_NAME

Descriptors& descriptors() {
  static Descriptors& all = *new Descriptors;  // never destroyed, like the driver
  return all;
}

cudnnBackendDescriptor_t Descriptors::create(cudnnBackendDescriptorType_t type) {
  if (rules_of(type).empty())
    refuse(CUDNN_STATUS_NOT_SUPPORTED, "the emulator does not support this descriptor type");
  const auto created = std::make_shared<Descriptor>(type);
  alive_.emplace(created.get(), created);
  return created.get();
}

void Descriptors::destroy(cudnnBackendDescriptor_t descriptor) {
  find(descriptor)->is_destroyed = true;
  alive_.erase(descriptor);
}

DescriptorPtr Descriptors::find(const void* descriptor) const {
  if (descriptor == nullptr) refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "the descriptor is null");
  const auto found = alive_.find(descriptor);
  require(found != alive_.end(), "not a descriptor, or it was destroyed");
  return found->second;
}

void set_attribute(Descriptor& descriptor, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                   std::int64_t count, const void* elements) {
  require(!descriptor.is_finalized, to_string(name) + ": set after its descriptor was finalized");
  const AttributeRule& rule = rule_of(descriptor, name);
  require(rule.presence != Presence::read_only, to_string(name) + " is read-only");
  check_type(rule, type);
  require(count >= rule.minimum && count <= rule.maximum,
          to_string(name) + ": found " + std::to_string(count) + " elements");
  require(elements != nullptr, to_string(name) + ": the source pointer is null");

  Attribute attribute{.type = type, .count = count};
  attribute.bytes.resize(static_cast<std::size_t>(count) * size_of(type));
  if (count > 0) std::memcpy(attribute.bytes.data(), elements, attribute.bytes.size());
  if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    std::vector<void*> given(static_cast<std::size_t>(count));
    std::memcpy(given.data(), elements, attribute.bytes.size());
    attribute.bytes.clear();
    for (const void* one : given) attribute.descriptors.push_back(nested_from(rule, one));
  }
  descriptor.attributes[name] = std::move(attribute);
}

void get_attribute(const Descriptor& descriptor, cudnnBackendAttributeName_t name,
                   cudnnBackendAttributeType_t type, std::int64_t requested, std::int64_t* count,
                   void* elements) {
  if (!descriptor.is_finalized)
    refuse(CUDNN_STATUS_NOT_INITIALIZED, to_string(name) + ": of a descriptor that is not finalized");
  const AttributeRule& rule = rule_of(descriptor, name);
  check_type(rule, type);
  require(requested >= 0, "the requested number of elements is negative");
  require(requested == 0 || elements != nullptr, to_string(name) + ": the destination pointer is null");
  require(requested != 0 || count != nullptr,
          to_string(name) + ": neither elements nor their number were requested");
  const auto found = descriptor.attributes.find(name);
  const Attribute none{.type = type};
  const Attribute& attribute = found != descriptor.attributes.end() ? found->second : none;
  check_type({.name = name, .type = attribute.type}, type);

  if (type == CUDNN_TYPE_CHAR && requested > 0 && requested < attribute.count)
    refuse(CUDNN_STATUS_BAD_PARAM_SIZE_INSUFFICIENT, to_string(name) + " is longer");
  const std::int64_t written = std::min(requested, attribute.count);
  // Like the real library (9.19), announces 40 configurations, or 4 fallbacks, even if there are fewer.
  const auto announced_results = [&] {
    const auto mode = descriptor.value<cudnnBackendHeurMode_t>(CUDNN_ATTR_ENGINEHEUR_MODE);
    return mode == CUDNN_HEUR_MODE_FALLBACK ? 4 : 40;
  };
  const std::int64_t announced =
      name == CUDNN_ATTR_ENGINEHEUR_RESULTS ? announced_results() : attribute.count;
  if (count != nullptr) *count = requested == 0 ? announced : written;
  if (type != CUDNN_TYPE_BACKEND_DESCRIPTOR) {
    copy_bytes(elements, attribute.bytes.data(), static_cast<std::size_t>(written) * size_of(type));
    return;
  }
  std::vector<void*> into(static_cast<std::size_t>(written));
  copy_bytes(into.data(), elements, into.size() * sizeof(void*));
  for (std::size_t i = 0; i < into.size(); ++i) fill(rule, *attribute.descriptors[i], into[i]);
}

void check_complete(const Descriptor& descriptor) {
  for (const AttributeRule& rule : rules_of(descriptor.type)) {
    require(rule.presence != Presence::required || descriptor.has(rule.name),
            to_string(rule.name) + " is not set");
    if (!descriptor.has(rule.name)) continue;
    for (const DescriptorPtr& nested : descriptor.attributes.at(rule.name).descriptors)
      require(!nested->is_destroyed,
              to_string(rule.name) + ": the descriptor was destroyed before it was used");
  }
}

}  // namespace convoy::emulator
