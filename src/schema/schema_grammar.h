// JSON Schema to GBNF: what an answer or the arguments of a call must look like. The work is bounded, and nothing that
// a schema promises is passed over in silence.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace winnow {

// How values are written.
enum class ValueNotation {
  kJson,
  kGemma,  // names without quotes, texts without escapes between <|"|> and <|"|>
};

// The rules of one grammar for values of several schemas. Names of rules begin with "w-".
//
// Schemas come as they were parsed: properties are written in their order. Names are looked up one after the other, so
// whoever parses bounds their number.
class SchemaRules {
 public:
  // What becomes of keywords that cannot be held.
  enum class Use {
    kPromise,  // refused by their names
    kAdvice,   // left out, with a warning
  };
  struct Member {
    std::string name;
    nlohmann::ordered_json schema;
    bool is_required = false;
  };

  // `subject` begins sentences: "the JSON schema". `document`: what references look into; it has to outlive all calls
  // until the next `begin`.
  explicit SchemaRules(Use use, ValueNotation notation = ValueNotation::kJson);
  ~SchemaRules();
  void begin(std::string subject, const nlohmann::ordered_json& document);

  // All throw Error(kInvalidArgument) that names the place and the keyword for what is malformed, for what nothing
  // matches and, of a promise, for what cannot be held.

  // An expression for values that follow a schema of the document.
  std::string value(const nlohmann::ordered_json& schema, const std::string& place);
  // For strings that stand without quotes and escapes before the text `end`, which they do not hold. Nothing where the
  // schema says no more of them than that they are strings.
  std::optional<std::string> text(const nlohmann::ordered_json& schema, const std::string& place,
                                  const std::string& end);
  // The properties of the objects that a schema describes.
  std::vector<Member> members(const nlohmann::ordered_json& schema, const std::string& place);
  // The schema of a list's items.
  nlohmann::ordered_json items(const nlohmann::ordered_json& schema, const std::string& place);
  // The types that it says values may be of; none: it says nothing of them.
  std::set<std::string> types(const nlohmann::ordered_json& schema, const std::string& place);

  // GBNF, without a root.
  std::string rules() const;
  // What answers are not held to, a sentence each.
  const std::vector<std::string>& warnings() const;

 private:
  class Converter;
  std::unique_ptr<Converter> converter_;
};

// The grammar of an answer. `warnings`: to them come keywords that say nothing which can be held.
std::string schema_grammar(const nlohmann::ordered_json& schema, std::vector<std::string>* warnings = nullptr,
                           SchemaRules::Use use = SchemaRules::Use::kPromise);

}  // namespace winnow
