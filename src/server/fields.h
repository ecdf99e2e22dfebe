// Fields of a request's JSON, checked: a wrong one is an ApiError(400) that names it.
#pragma once

#include <optional>
#include <string>

#include "server/api_error.h"

namespace winnow::server {

// Parses a body: UTF-8, an object, not nested deeper than 64 levels. Throws ApiError(400).
Json parse_body(const std::string& text);

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
