#include "server/body_json.h"

#include "base/bounded_json.h"

namespace winnow::server {
namespace {

[[noreturn]] void refuse(const JsonRefusal& refusal) {
  const auto more_than = [&](std::size_t most, const char* what) {
    throw ApiError(400,
                   (refusal.field.empty() ? "the body" : "'" + refusal.field + "'") + " has more than " +
                       std::to_string(most) + what + ": shorten it",
                   refusal.field);
  };
  switch (refusal.reason) {
    case JsonRefusal::Reason::kLevels:
      throw ApiError(400, "the body is nested deeper than " + std::to_string(kMostJsonLevels) + " levels: flatten it");
    case JsonRefusal::Reason::kNamesOfObject:
      more_than(kMostNamesOfObject, " names in one object");
      break;
    case JsonRefusal::Reason::kParts:
      more_than(kMostJsonParts, " names, objects and lists");
      break;
    case JsonRefusal::Reason::kNumber:
      throw ApiError(400, "the body has JSON that this server cannot use: " + refusal.what);
    default:
      break;
  }
  throw ApiError(400, "the body is not valid JSON: there is an error at byte " + std::to_string(refusal.byte));
}

}  // namespace

Json parse_json(const std::string& text) {
  try {
    return parse_bounded_json<Json>(
        text, {.levels = kMostJsonLevels, .names_of_object = kMostNamesOfObject, .parts = kMostJsonParts});
  } catch (const JsonRefusal& refusal) {
    refuse(refusal);
  }
}

Json parse_body(const std::string& text) {
  Json json = parse_json(text);
  if (!json.is_object()) throw ApiError(400, "the body must be a JSON object");
  return json;
}

JsonSize size_of(const Json& json) {
  JsonSize size{.n_names = json.is_object() ? json.size() : 0, .n_values = 1};
  if (!json.is_structured()) return size;
  for (const Json& value : json) {
    const JsonSize inner = size_of(value);
    size.n_names += inner.n_names;
    size.n_values += inner.n_values;
  }
  return size;
}

}  // namespace winnow::server
