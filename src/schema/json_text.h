// The text of a JSON value.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace winnow {

// Returns the value on one line. Bytes that are not UTF-8 become U+FFFD.
inline std::string text_of(const nlohmann::ordered_json& value) {
  return value.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
}

}  // namespace winnow
