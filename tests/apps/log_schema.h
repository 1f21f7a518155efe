// Checks lines of log.jsonl against docs/log.schema.json.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

namespace convoy::testing {

/// Returns the first violation of a JSON Schema by `value`, with its place, or an empty string. Reads the
/// keywords that docs/log.schema.json has, and throws std::invalid_argument for others. `root` resolves
/// references.
std::string schema_violation(const nlohmann::ordered_json& value, const nlohmann::ordered_json& schema,
                             const nlohmann::ordered_json& root, const std::string& place = "");

/// Returns the violation of docs/log.schema.json by an event of a log, or an empty string.
std::string log_violation(const nlohmann::ordered_json& event);

}  // namespace convoy::testing
