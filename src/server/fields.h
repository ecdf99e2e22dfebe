// Fields of a request's JSON, checked: a wrong one is an ApiError(400) that names it as the client does.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>

#include "server/api_error.h"

namespace winnow::server {

// What a client calls the fields of OpenAI's API that its request was translated to: "max_tokens" is Responses'
// "max_output_tokens". A name on the left has what it stands in before it ("tools[].function"), one on the right has
// not; an empty one says that the client's request has no such level. "tools[0]" is an entry that has another number.
using FieldNames = std::map<std::string, std::string>;

// The fields of one object. A field that is missing or null is not there.
class Fields {
 public:
  // `path` is what stands before a name in messages ("kv."). `object` and `names` have to outlive this.
  explicit Fields(const Json& object, std::string path = "", const FieldNames* names = nullptr)
      : object_(object), path_(std::move(path)), names_(names) {}

  // Returns the fields of an object that stands in the field `name`, or in its list at `i`.
  Fields inner(const std::string& name, const Json& object) const;
  Fields inner(const std::string& name, std::size_t i, const Json& object) const;

  // All return nothing (or null) for a field that is not there, and throw ApiError(400) for one of another type or out
  // of range.
  const Json* find(const std::string& name) const;
  std::optional<std::string> text(const std::string& name) const;
  std::optional<bool> boolean(const std::string& name) const;
  std::optional<std::int64_t> integer(const std::string& name, std::int64_t lowest, std::int64_t highest) const;
  std::optional<double> number(const std::string& name, double lowest, double highest) const;
  const Json* object(const std::string& name) const;

  // Returns the field's name as the client has it, with what it stands in: "tools[0].name".
  std::string path(const std::string& name) const;
  [[noreturn]] void refuse(const std::string& name, const std::string& what) const;

 private:
  // The client's name of `name`, which stands here.
  std::string renamed(const std::string& name) const;

  const Json& object_;
  std::string path_;   // the client's
  std::string place_;  // ours, as FieldNames have it
  const FieldNames* names_;
};

// Returns true if it is a number that a token may have, and if it is a list of these, at least one.
bool is_token(const Json& json);
bool is_token_list(const Json& json);

// Takes a field out of an object; null where it is not there.
Json take(Json& object, const std::string& name);

}  // namespace winnow::server
