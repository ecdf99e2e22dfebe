// The conversion of JSON Schema to GBNF, for answers and for the arguments of calls. The work is bounded, and no
// requirement of a schema is ignored without an error or a warning.
#pragma once

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace winnow {

// The notation in which values are written.
enum class ValueNotation {
  kJson,
  kGemma,  // names without quotes, texts without escapes between <|"|> and <|"|>
};

// The rules of one grammar for values of several schemas. Names of rules begin with "w-".
//
// Schemas are taken as they were parsed, and properties are written in their order. Names are looked up one after the
// other, so the caller has to bound their number when it parses.
class SchemaRules {
 public:
  // The treatment of keywords that cannot be enforced.
  enum class Use {
    kPromise,  // refused with an error that names them
    kAdvice,   // left out, with a warning
  };
  struct Member {
    std::string name;
    nlohmann::ordered_json schema;
    bool is_required = false;
  };

  explicit SchemaRules(Use use, ValueNotation notation = ValueNotation::kJson);
  ~SchemaRules();
  // Sets the subject that begins the sentences of errors, such as "the JSON schema", and the document that references
  // look into. The document has to outlive all calls, since documents are told apart by their addresses.
  void begin(std::string subject, const nlohmann::ordered_json& document);

  // All throw Error(kInvalidArgument) that names the place and the keyword if a schema is malformed, if no value
  // matches it or, with Use::kPromise, if it cannot be enforced.

  // Returns an expression for values that follow a schema of the document.
  std::string value(const nlohmann::ordered_json& schema, const std::string& place);
  // Returns an expression for strings that stand without quotes and escapes before the text `end`, which they do not
  // contain. Returns nullopt if the schema says no more of them than that they are strings, and if it does not restrict
  // its values to strings or allows none.
  std::optional<std::string> text(const nlohmann::ordered_json& schema, const std::string& place,
                                  const std::string& end);
  // Returns the properties of the objects that a schema describes.
  std::vector<Member> members(const nlohmann::ordered_json& schema, const std::string& place);
  // Returns the schema of a list's items.
  nlohmann::ordered_json items(const nlohmann::ordered_json& schema, const std::string& place);
  // Returns the types that a schema allows, or none if it does not restrict them.
  std::set<std::string> types(const nlohmann::ordered_json& schema, const std::string& place);

  // Returns the rules in GBNF, without a root.
  std::string rules() const;
  // Returns a sentence for each requirement that answers are not held to.
  const std::vector<std::string>& warnings() const;

 private:
  class Converter;
  std::unique_ptr<Converter> converter_;
};

// Returns the grammar of an answer. Appends a sentence to `warnings` for each keyword that is not enforced.
std::string schema_grammar(const nlohmann::ordered_json& schema, std::vector<std::string>* warnings = nullptr,
                           SchemaRules::Use use = SchemaRules::Use::kPromise);

}  // namespace winnow
