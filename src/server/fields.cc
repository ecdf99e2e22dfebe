#include "server/fields.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>

#include "base/numbers.h"

namespace winnow::server {

Fields Fields::inner(const std::string& name, const Json& object) const {
  Fields made(object, path(name), names_);
  if (made.path_ != path_) made.path_ += '.';
  made.place_ = place_ + name + ".";
  return made;
}

Fields Fields::inner(const std::string& name, std::size_t i, const Json& object) const {
  const std::string ours = name + "[" + std::to_string(i) + "]";
  const std::string theirs = renamed(ours);
  Fields made(object, theirs == ours ? path(name) + ours.substr(name.size()) : path_ + theirs, names_);
  made.path_ += '.';
  made.place_ = place_ + name + "[].";
  return made;
}

void Fields::each(const std::string& name, const Json& list,
                  const std::function<void(std::size_t i, const Fields& entry)>& use) const {
  if (list.is_null()) return;
  if (!list.is_array()) refuse(name, "must be a list");
  for (std::size_t i = 0; i < list.size(); ++i) {
    if (!list[i].is_object()) refuse(name, "must be a list of objects");
    use(i, inner(name, i, list[i]));
  }
}

std::string Fields::renamed(const std::string& name) const {
  if (names_ == nullptr) return name;
  const auto found = names_->find(place_ + name);
  return found == names_->end() ? name : found->second;
}

std::string Fields::path(const std::string& name) const { return path_ + renamed(name); }

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

const Json* Fields::object(const std::string& name) const {
  const Json* json = find(name);
  if (json != nullptr && !json->is_object()) refuse(name, "must be an object");
  return json;
}

bool is_token(const Json& json) { return json.is_number_integer() && json >= 0 && json <= INT32_MAX; }

bool is_token_list(const Json& json) {
  return json.is_array() && !json.empty() && std::all_of(json.begin(), json.end(), is_token);
}

Json take(Json& object, const std::string& name) {
  const auto found = object.find(name);
  if (found == object.end()) return nullptr;
  Json value = std::move(*found);
  object.erase(found);
  return value;
}

}  // namespace winnow::server
