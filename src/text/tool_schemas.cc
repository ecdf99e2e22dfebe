#include "text/tool_schemas.h"

#include <cstdint>
#include <deque>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "schema/json_text.h"
#include "schema/schema_grammar.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using OrderedJson = nlohmann::ordered_json;

// The longest name of a property: libllama-common's std::regex recurses for each of its characters.
constexpr std::size_t kMostPropertyBytes = 256;
// libllama-common's time for an object grows with the third power of its number of properties. This bounds the sum of
// these powers over all objects: one may have 500 properties, or each of a thousand 50.
constexpr std::uint64_t kMostPropertyWork = 500 * 500 * 500;

// The maker of one request's plain schemas.
class PlainSchemas {
 public:
  explicit PlainSchemas(SchemaUse use) : use_(use), is_shown_(use == SchemaUse::kShown) {}

  // Returns the tool with a plain schema, of an object.
  ChatTool with_plain_schema(const ChatTool& tool) {
    const OrderedJson& parameters = documents_.emplace_back(parsed_parameters(tool));
    subject_ = subject_of(tool);
    rules_.begin(subject_, parameters);
    OrderedJson schema = plain_schema(parameters, "parameters", 0);
    if (!schema.contains("properties")) schema = {{"type", "object"}, {"properties", OrderedJson::object()}};
    schema.erase("description");
    return {tool.name, tool.description, text_of(schema)};
  }

 private:
  OrderedJson plain_schema(const OrderedJson& schema, const std::string& place, int depth);
  // Returns the properties of the objects that a schema describes. Throws Error(kInvalidArgument) beyond the limits.
  std::vector<SchemaRules::Member> members(const OrderedJson& schema, const std::string& place);
  [[noreturn]] void refuse(const std::string& place, const std::string& what) const {
    throw Error(ErrorCode::kInvalidArgument, subject_ + " cannot be used: " + what + " (at " + place + ")");
  }

  const SchemaUse use_;
  const bool is_shown_;
  std::deque<OrderedJson> documents_;  // of all tools, since the rules tell documents apart by their addresses
  SchemaRules rules_{SchemaRules::Use::kAdvice};
  std::string subject_;  // of the present tool
  std::uint64_t property_work_ = 0;
};

std::vector<SchemaRules::Member> PlainSchemas::members(const OrderedJson& schema, const std::string& place) {
  std::vector<SchemaRules::Member> all = rules_.members(schema, place);
  const std::uint64_t n = all.size();
  property_work_ += n * n * n;
  if (property_work_ > kMostPropertyWork) {
    refuse(place, "with its " + std::to_string(n) +
                      " properties, the tools have too many: an object may have 500, many objects fewer each");
  }
  for (const SchemaRules::Member& member : all) {
    if (member.name.size() > kMostPropertyBytes) {
      refuse(place, "the name of a property has " + std::to_string(member.name.size()) + " bytes, more than the " +
                        std::to_string(kMostPropertyBytes) + " allowed: shorten it");
    }
  }
  return all;
}

// Returns a schema that states only the shape of its values. Each has a type, which many templates need; of several
// types it is the first one in the list below. is_shown_ adds the keywords that help a model.
OrderedJson PlainSchemas::plain_schema(const OrderedJson& schema, const std::string& place, int depth) {
  constexpr int kMostPlain = 5;
  OrderedJson plain = {{"type", is_shown_ ? "string" : "number"}};
  std::set<std::string> types = rules_.types(schema, place);
  if (use_ == SchemaUse::kQuotingParser && types.size() > 1) types.erase("string");
  for (const char* type : {"string", "array", "object", "integer", "number", "boolean", "null"}) {
    if (!types.contains(type)) continue;
    plain["type"] = type;
    break;
  }
  if (is_shown_ && schema.is_object()) {
    plain["description"] = "";
    for (const char* keyword : {"description", "enum"}) {
      if (schema.contains(keyword)) plain[keyword] = schema[keyword];
    }
  }
  if (plain["type"] == "array") {
    const OrderedJson items = depth < kMostPlain ? rules_.items(schema, place) : OrderedJson(true);
    plain["items"] = plain_schema(items, place, depth + 1);
  } else if (plain["type"] == "object") {
    OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
    std::vector<SchemaRules::Member> named;
    if (depth < kMostPlain) named = members(schema, place);
    for (const SchemaRules::Member& member : named) {
      properties[member.name] = plain_schema(member.schema, place + "." + member.name, depth + 1);
      if (member.is_required) required.push_back(member.name);
    }
    plain["properties"] = std::move(properties);
    plain["required"] = std::move(required);
  }
  return plain;
}

}  // namespace

std::string subject_of(const ChatTool& tool) { return "the parameters of tool '" + tool.name + "'"; }

OrderedJson parsed_parameters(const ChatTool& tool) {
  OrderedJson parameters =
      tool.parameters.empty() ? OrderedJson::object() : OrderedJson::parse(tool.parameters, nullptr, false);
  if (parameters.is_discarded()) {
    throw Error(ErrorCode::kInvalidArgument, subject_of(tool) + " are not JSON");
  }
  if (parameters.is_boolean() || parameters.is_null()) parameters = OrderedJson::object();
  if (!parameters.is_object()) {
    throw Error(ErrorCode::kInvalidArgument, subject_of(tool) + " must be a JSON schema");
  }
  return parameters;
}

std::vector<ChatTool> with_plain_schemas(const std::vector<ChatTool>& tools, SchemaUse use) {
  std::vector<ChatTool> plain;
  PlainSchemas schemas(use);
  for (const ChatTool& tool : tools) plain.push_back(schemas.with_plain_schema(tool));
  return plain;
}

}  // namespace winnow
