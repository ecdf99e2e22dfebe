// Fields of a request's JSON, checked: a wrong one is an ApiError(400) that names it.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "server/api_error.h"

namespace winnow::server {

// Parses a body: UTF-8, an object, not nested deeper than 64 levels. Throws ApiError(400).
Json parse_body(const std::string& text);

using OrderedJson = nlohmann::ordered_json;  // names come in the order of the text

// A name, and how many objects and lists it stands in: 1 for a field of the body.
struct FieldStep {
  int depth;
  std::string_view name;
};

// Of a body that parse_body has accepted what stands under these names, one in the other: with all names in their
// order. Everything else is left out, but lists keep their lengths. Looking names up in it is linear: throws
// ApiError(400) for more than 50,000 of them, 2,500 in one object or 100,000 values under the last name, each time it
// is there.
OrderedJson parse_ordered(const std::string& text, std::span<const FieldStep> path);
OrderedJson parse_ordered_field(const std::string& text, const std::string& name);

// A field that is missing or null is not there. `path` is what stands before the name in messages ("kv.").
class Fields {
 public:
  explicit Fields(const Json& object, std::string path = "") : object_(object), path_(std::move(path)) {}

  const Json* find(const std::string& name) const;
  std::optional<std::string> text(const std::string& name) const;
  std::optional<bool> boolean(const std::string& name) const;
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t lowest, std::int64_t highest) const;
  std::optional<double> number(const std::string& name, double lowest, double highest) const;
  std::optional<Json> object(const std::string& name) const;

  std::string path(const std::string& name) const { return path_ + name; }
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const;

 private:
  const Json& object_;
  std::string path_;
};

}  // namespace winnow::server
