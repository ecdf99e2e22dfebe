#include "server/fields.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/numbers.h"

namespace winnow::server {
namespace {

constexpr int kMostLevels = 64;
constexpr int kMostOrderedKeys = 50'000;
constexpr int kMostKeysOfObject = 2'500;  // they are compared with each other
constexpr int kMostOrderedValues = 100'000;

}  // namespace

Json parse_body(const std::string& text) {
  bool is_too_deep = false;
  const auto watch = [&](int depth, Json::parse_event_t, Json&) {
    if (depth > kMostLevels) is_too_deep = true;
    return depth <= kMostLevels;  // false: what is below is not stored
  };
  Json json;
  try {
    json = Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    throw ApiError(400, "the body is not JSON, at byte " + std::to_string(error.byte));
  } catch (const Json::exception& error) {
    throw ApiError(400, std::string("the body is not JSON that can be used: ") + error.what());
  }
  if (is_too_deep) {
    throw ApiError(400, "the body is nested deeper than " + std::to_string(kMostLevels) + " levels: flatten it");
  }
  if (!json.is_object()) throw ApiError(400, "the body must be a JSON object");
  return json;
}

OrderedJson parse_ordered(const std::string& text, std::span<const FieldStep> path) {
  int n_keys = 0, n_values = 0, most_keys = 0, most_values = 0;  // under the last name
  std::array<int, kMostLevels + 2> n_of_object{};                // names, by the depth at which they stand
  int most_of_object = 0;
  std::vector<bool> is_under(path.size());  // the names that what is read stands under
  const auto only_path = [&](int depth, OrderedJson::parse_event_t event, OrderedJson& parsed) -> bool {
    using Event = OrderedJson::parse_event_t;
    const auto step = std::find_if(path.begin(), path.end(), [&](const FieldStep& s) { return s.depth == depth; });
    if (event == Event::key && step != path.end()) {
      const auto i = static_cast<std::size_t>(step - path.begin());
      std::fill(is_under.begin() + static_cast<std::ptrdiff_t>(i), is_under.end(), false);
      n_keys = n_values = 0;
      return is_under[i] = (i == 0 || is_under[i - 1]) && parsed == step->name;
    }
    const auto level = static_cast<std::size_t>(std::min(depth, kMostLevels));
    if (event == Event::object_start) n_of_object[level + 1] = 0;
    if (event == Event::key) {
      if (is_under.back()) {
        most_keys = std::max(most_keys, ++n_keys);
        most_of_object = std::max(most_of_object, ++n_of_object[level]);
      }
      return is_under.back() && n_keys <= kMostOrderedKeys && n_of_object[level] <= kMostKeysOfObject;
    }
    if (event == Event::value && is_under.back()) most_values = std::max(most_values, ++n_values);
    return n_values <= kMostOrderedValues;
  };
  OrderedJson body = OrderedJson::parse(text, only_path);
  const auto refuse_beyond = [&](int n, int most, const std::string& what) {
    if (n <= most) return;
    throw ApiError(
        400,
        "'" + std::string(path.back().name) + "' has more than " + std::to_string(most) + " " + what + ": shorten it",
        std::string(path.front().name));
  };
  refuse_beyond(most_keys, kMostOrderedKeys, "names");
  refuse_beyond(most_of_object, kMostKeysOfObject, "names in one object");
  refuse_beyond(most_values, kMostOrderedValues, "values");
  return body;
}

OrderedJson parse_ordered_field(const std::string& text, const std::string& name) {
  const FieldStep field{1, name};
  return parse_ordered(text, {&field, 1}).value(name, OrderedJson());
}

const Json* Fields::find(const std::string& name) const {
  const auto found = object_.find(name);
  return found == object_.end() || found->is_null() ? nullptr : &*found;
}

void Fields::refuse(const std::string& name, const std::string& what) const {
  throw ApiError(400, "'" + path(name) + "' " + what, path(name));
}

std::optional<std::string> Fields::text(const std::string& name) const {
  const Json* json = find(name);
  if (json == nullptr) return std::nullopt;
  if (!json->is_string()) refuse(name, "must be a string");
  return json->get<std::string>();
}

std::optional<bool> Fields::boolean(const std::string& name) const {
  const Json* json = find(name);
  if (json == nullptr) return std::nullopt;
  if (!json->is_boolean()) refuse(name, "must be true or false");
  return json->get<bool>();
}

std::optional<std::int64_t> Fields::integer(const std::string& name, std::int64_t lowest, std::int64_t highest) const {
  const Json* json = find(name);
  if (json == nullptr) return std::nullopt;
  const std::string range = "must be a whole number from " + std::to_string(lowest) + " to " + std::to_string(highest);
  // 64.0 is a whole number too; 1e300 and 2^63 are not in range.
  if (!json->is_number()) refuse(name, range);
  if (json->is_number_float()) {
    const auto value = json->get<double>();
    if (!(value >= static_cast<double>(lowest) && value <= static_cast<double>(highest)) ||
        value != std::floor(value)) {
      refuse(name, range);
    }
    return static_cast<std::int64_t>(value);
  }
  if (json->is_number_unsigned() && json->get<std::uint64_t>() > static_cast<std::uint64_t>(INT64_MAX)) {
    refuse(name, range);
  }
  const auto value = json->get<std::int64_t>();
  if (value < lowest || value > highest) refuse(name, range);
  return value;
}

std::optional<double> Fields::number(const std::string& name, double lowest, double highest) const {
  const Json* json = find(name);
  if (json == nullptr) return std::nullopt;
  const auto value = json->is_number() ? json->get<double>() : std::nan("");
  if (!(value >= lowest && value <= highest)) {
    refuse(name, "must be a number from " + format_number(lowest) + " to " + format_number(highest));
  }
  return value;
}

std::optional<Json> Fields::object(const std::string& name) const {
  const Json* json = find(name);
  if (json == nullptr) return std::nullopt;
  if (!json->is_object()) refuse(name, "must be an object");
  return *json;
}

}  // namespace winnow::server
