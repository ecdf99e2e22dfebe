// Checked access to the fields of a request's JSON. The error for a wrong field names it as the client does.
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "server/api_error.h"

namespace winnow::server {

// The client's names of the fields of OpenAI's API that its request was translated to: "max_tokens" is
// "max_output_tokens" in Responses. A key has the enclosing fields before the name ("tools[].function"), a value is
// relative to the object that the field is in; an empty one says that the client's request has no such level. The key
// "tools[0]" is an entry whose index in the client's list is another one.
using FieldNames = std::map<std::string, std::string>;

// The fields of one object. A field that is null counts as missing.
class Fields {
 public:
  // `path` stands before names in error messages ("kv."). `object` and `names` have to outlive this.
  explicit Fields(const Json& object, std::string path = "", const FieldNames* names = nullptr)
      : object_(object), path_(std::move(path)), names_(names) {}

  // Returns the fields of an object that is in the field `name`, or at index `i` of the list there.
  Fields inner(const std::string& name, const Json& object) const;
  Fields inner(const std::string& name, std::size_t i, const Json& object) const;
  // Calls use(i, the fields of entry i) for each entry of a list, which is or was in the field `name`; null counts as
  // empty. Throws ApiError(400) if it is no list, and at an entry that is no object.
  void each(const std::string& name, const Json& list,
            const std::function<void(std::size_t i, const Fields& entry)>& use) const;

  // All return nullopt (or null) for a missing field, and throw ApiError(400) for one of another type or out of range.
  const Json* find(const std::string& name) const;
  std::optional<std::string> text(const std::string& name) const;
  std::optional<bool> boolean(const std::string& name) const;
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t lowest, std::int64_t highest) const;
  std::optional<double> number(const std::string& name, double lowest, double highest) const;
  const Json* object(const std::string& name) const;

  // Returns the field's name as the client has it, with the enclosing fields: "tools[0].name".
  std::string path(const std::string& name) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const;

 private:
  // Returns the client's name of the field `name` of this object.
  std::string renamed(const std::string& name) const;

  const Json& object_;
  std::string path_;   // the client's path to this object
  std::string place_;  // our path to it, as in the keys of FieldNames
  const FieldNames* names_;
};

// Return true for a number that a token may have, and for a list of at least one of these.
bool is_token(const Json& json);
bool is_token_list(const Json& json);

// Removes a field from an object and returns it; null if it is missing.
Json take(Json& object, const std::string& name);

}  // namespace winnow::server
