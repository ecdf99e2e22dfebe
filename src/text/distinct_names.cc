#include "text/distinct_names.h"

#include <algorithm>
#include <cctype>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

namespace winnow {
namespace {

using OrderedJson = nlohmann::ordered_json;

// Returns the same as libllama-common's rule_name().
std::string rule_name(const std::string& name) {
  std::string made;
  bool is_replaced = false;
  for (const char c : name) {
    const bool is_kept = c == '-' || (static_cast<unsigned char>(c) < 128 && std::isalnum(c) != 0);
    if (is_kept) {
      made += c;
    } else if (!is_replaced) {
      made += '-';
    }
    is_replaced = !is_kept;
  }
  return made;
}

constexpr std::string_view kNameLead = "winnowName";
constexpr std::size_t kDigits = 8;

// Returns the replacement with number i. All have the same length, so that they differ and none is a part of another.
std::string stand_in(std::size_t i) {
  const std::string digits = std::to_string(i);
  return std::string(kNameLead) + std::string(kDigits - std::min(kDigits, digits.size()), '0') + digits;
}

bool has_same_rules(const std::vector<ChatTool>& tools, const std::vector<OrderedJson>& schemas) {
  std::set<std::string> rules;
  for (const char* own : {"call", "calls", "call-root"}) rules.insert(own);
  for (std::size_t i = 0; i < tools.size(); ++i) {
    if (!rules.insert(rule_name(tools[i].name)).second) return true;
    for (const auto& [name, schema] : schemas[i]["properties"].items()) {
      // Most parsers write "-arg-" between the names; Kimi K3's writes "-".
      for (const char* between : {"-arg-", "-"}) {
        if (!rules.insert(rule_name(tools[i].name + between + name)).second) return true;
      }
    }
  }
  return false;
}

}  // namespace

DistinctNames::DistinctNames(std::vector<ChatTool>& tools) {
  std::vector<OrderedJson> schemas;
  for (const ChatTool& tool : tools) schemas.push_back(OrderedJson::parse(tool.parameters));
  if (!has_same_rules(tools, schemas)) return;
  for (std::size_t i = 0; i < tools.size(); ++i) {
    const auto replaced = [&](const std::string& name) {
      std::string made = stand_in(own_.size());
      own_.emplace(made, name);
      return made;
    };
    tools[i].name = replaced(tools[i].name);
    OrderedJson properties = OrderedJson::object(), required = OrderedJson::array();
    const std::set<std::string> names(schemas[i]["required"].begin(), schemas[i]["required"].end());
    for (const auto& [name, schema] : schemas[i]["properties"].items()) {
      const std::string made = replaced(name);
      properties[made] = schema;
      if (names.contains(name)) required.push_back(made);
    }
    schemas[i]["properties"] = std::move(properties);
    schemas[i]["required"] = std::move(required);
    tools[i].parameters = schemas[i].dump();
  }
}

std::string DistinctNames::text_with_own(std::string text) const {
  constexpr std::size_t kBytes = kNameLead.size() + kDigits;
  for (std::size_t at = 0; (at = text.find(kNameLead, at)) != std::string::npos;) {
    const auto own = own_.find(text.substr(at, kBytes));
    if (own != own_.end()) text.replace(at, kBytes, own->second);
    at += own != own_.end() ? own->second.size() : kNameLead.size();
  }
  return text;
}

std::string DistinctNames::parser_with_own(const std::string& parser) const {
  if (own_.empty()) return parser;
  OrderedJson all = OrderedJson::parse(parser);
  const auto replace = [&](OrderedJson& text) { text = text_with_own(text.get<std::string>()); };
  for (OrderedJson& node : all["parsers"]) {
    if (node.contains("literal")) replace(node["literal"]);
    if (!node.contains("delimiters")) continue;
    for (OrderedJson& delimiter : node["delimiters"]) replace(delimiter);
  }
  return all.dump();
}

}  // namespace winnow
