#include "tests/apps/log_schema.h"

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>
#include <stdexcept>

#include "tests/testing/source_tree/source_path.h"

namespace convoy::testing {
namespace {

using Json = nlohmann::ordered_json;

bool has_type(const Json& value, const std::string& type) {
  if (type == "integer") return value.is_number_integer();
  if (type == "number") return value.is_number();
  if (type == "string") return value.is_string();
  if (type == "boolean") return value.is_boolean();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "null") return value.is_null();
  throw std::invalid_argument("unknown type " + type);
}

bool has_one_of_types(const Json& value, const Json& types) {
  if (types.is_string()) return has_type(value, types);
  return std::any_of(types.begin(), types.end(), [&](const Json& type) { return has_type(value, type); });
}

void check_keywords(const Json& schema) {
  static const std::set<std::string> known = {
      "$schema", "$ref",       "$defs",    "title",   "description", "oneOf",  "type",
      "const",   "properties", "required", "minimum", "maximum",     "format", "additionalProperties",
      "items",   "pattern"};
  for (const auto& [keyword, ignored] : schema.items())
    if (!known.contains(keyword)) throw std::invalid_argument("unknown keyword " + keyword);
}

std::string object_violation(const Json& value, const Json& schema, const Json& root,
                             const std::string& place) {
  for (const Json& name : schema.value("required", Json::array()))
    if (!value.contains(name.get<std::string>())) return place + ": has no " + name.dump();
  const Json properties = schema.value("properties", Json::object());
  const Json more = schema.value("additionalProperties", Json(true));
  for (const auto& [name, member] : value.items()) {
    std::string violation;
    if (properties.contains(name))
      violation = schema_violation(member, properties[name], root, place + "/" + name);
    else if (more.is_object())
      violation = schema_violation(member, more, root, place + "/" + name);
    else if (!more.get<bool>())
      violation = place + "/" + name + ": is not in the schema";
    if (!violation.empty()) return violation;
  }
  return "";
}

}  // namespace

std::string schema_violation(const Json& value, const Json& schema, const Json& root,
                             const std::string& place) {
  check_keywords(schema);
  const auto violation = [&](const Json& expected) {
    return place + ": found " + value.dump() + ", expected " + expected.dump();
  };
  if (schema.contains("$ref"))
    return schema_violation(value, root.at(Json::json_pointer(schema["$ref"].get<std::string>().substr(1))),
                            root, place);
  if (schema.contains("oneOf")) {
    std::string reasons;
    const auto valid = std::count_if(schema["oneOf"].begin(), schema["oneOf"].end(), [&](const Json& each) {
      const std::string reason = schema_violation(value, each, root, place);
      reasons += reason + "; ";
      return reason.empty();
    });
    return valid == 1 ? "" : reasons;
  }
  if (schema.contains("type") && !has_one_of_types(value, schema["type"])) return violation(schema["type"]);
  if (schema.contains("const") && value != schema["const"]) return violation(schema["const"]);
  if (value.is_number() && schema.contains("minimum") && value < schema["minimum"]) return violation(schema);
  if (value.is_number() && schema.contains("maximum") && value > schema["maximum"]) return violation(schema);
  if (schema.contains("pattern") &&
      !std::regex_search(value.get<std::string>(), std::regex(schema["pattern"].get<std::string>())))
    return violation(schema["pattern"]);
  if (value.is_array() && schema.contains("items"))
    for (const Json& item : value)
      if (const auto found = schema_violation(item, schema["items"], root, place + "/"); !found.empty())
        return found;
  return value.is_object() ? object_violation(value, schema, root, place) : "";
}

std::string log_violation(const Json& event) {
  static const Json schema = Json::parse(std::ifstream(testing::source_path("docs/log.schema.json")));
  const bool has_name = event.is_object() && event.contains("event") && event["event"].is_string();
  const Json named = has_name ? schema["$defs"].value(event["event"].get<std::string>(), Json()) : Json();
  return named.is_null() ? schema_violation(event, schema, schema)  // names all events that it could be
                         : schema_violation(event, named, schema);
}

}  // namespace convoy::testing
