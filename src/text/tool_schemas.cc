#include "text/tool_schemas.h"

#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "schema/schema_grammar.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Returns a schema that states only the shape of its values. Each has a type, which many templates need; of several
// types it is the first one in the list below. `is_shown` adds the keywords that help a model.
OrderedJson plain_schema(SchemaRules& rules, const OrderedJson& schema, const std::string& place, int depth,
                         bool is_shown) {
  constexpr int kMostPlain = 5;
  OrderedJson plain = {{"type", is_shown ? "string" : "number"}};
  const std::set<std::string> types = rules.types(schema, place);
  for (const char* type : {"string", "array", "object", "integer", "number", "boolean", "null"}) {
    if (!types.contains(type)) continue;
    plain["type"] = type;
    break;
  }
  if (is_shown && schema.is_object()) {
    plain["description"] = "";
    for (const char* keyword : {"description", "enum"}) {
      if (schema.contains(keyword)) plain[keyword] = schema[keyword];
    }
  }
  if (plain["type"] == "array") {
    const OrderedJson items = depth < kMostPlain ? rules.items(schema, place) : OrderedJson(true);
    plain["items"] = plain_schema(rules, items, place, depth + 1, is_shown);
  } else if (plain["type"] == "object") {
    OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
    std::vector<SchemaRules::Member> members;
    if (depth < kMostPlain) members = rules.members(schema, place);
    for (const SchemaRules::Member& member : members) {
      properties[member.name] = plain_schema(rules, member.schema, place + "." + member.name, depth + 1, is_shown);
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

std::vector<ChatTool> with_plain_schemas(const std::vector<ChatTool>& tools, bool is_shown) {
  std::vector<ChatTool> plain;
  SchemaRules rules(SchemaRules::Use::kAdvice);
  for (const ChatTool& tool : tools) {
    const OrderedJson parameters = parsed_parameters(tool);
    rules.begin(subject_of(tool), parameters);
    OrderedJson schema = plain_schema(rules, parameters, "parameters", 0, is_shown);
    if (!schema.contains("properties")) schema = {{"type", "object"}, {"properties", OrderedJson::object()}};
    schema.erase("description");
    plain.push_back({tool.name, tool.description, schema.dump(-1, ' ', false, OrderedJson::error_handler_t::replace)});
  }
  return plain;
}

}  // namespace winnow
