// JSON Schema to GBNF: what the grammars accept, by a matcher of the tests' own, and that libllama takes them.
#include "server/schema_grammar.h"

#include <gtest/gtest.h>

#include <memory>

#include "model/tiny_model.h"
#include "server/api_error.h"
#include "server/gbnf_matcher.h"
#include "winnow/sampling.h"

namespace winnow::server {
namespace {

class SchemaGrammarTest : public testing::Test {
 protected:
  // The grammar of a schema; libllama has to take it.
  static std::string grammar_of(const std::string& schema) {
    static const test::TinyModel file;
    static const std::shared_ptr<const Model> model = Model::load(file.path());
    const std::string grammar = schema_grammar(OrderedJson::parse(schema));
    EXPECT_NO_THROW(Sampler(model, {.temperature = 0, .grammar = grammar})) << grammar;
    return grammar;
  }
  static void check(const std::string& schema, const std::vector<std::string>& good,
                    const std::vector<std::string>& bad) {
    const std::string grammar = grammar_of(schema);
    for (const std::string& text : good) EXPECT_TRUE(test::gbnf_matches(grammar, text)) << text << "\n" << grammar;
    for (const std::string& text : bad) EXPECT_FALSE(test::gbnf_matches(grammar, text)) << text << "\n" << grammar;
  }
  static std::string refusal(const std::string& schema) {
    try {
      schema_grammar(OrderedJson::parse(schema));
    } catch (const ApiError& error) {
      EXPECT_EQ(error.status, 400);
      EXPECT_EQ(error.param, "response_format");
      return error.what();
    }
    ADD_FAILURE() << "no error for " << schema;
    return "";
  }
};

TEST_F(SchemaGrammarTest, Scalars) {
  check(R"({"type":"integer"})", {"0", "-7", "120"}, {"01", "1.5", "", "-", "\"1\"", "1e3"});
  check(R"({"type":"number"})", {"0", "-7.25", "1e-3", "12.5E+10"}, {".5", "1.", "--1", "NaN"});
  check(R"({"type":"boolean"})", {"true", "false"}, {"True", "0"});
  check(R"({"type":"null"})", {"null"}, {"nil", ""});
  check(R"({"type":"string"})", {"\"\"", "\"a b\"", R"("\"\\\n\u00e9")", "\"\u00e9\u4e2d\""},
        {"\"", "a", R"("\x")", R"("\u12")", "\"a\nb\""});
  check(R"({"type":["string","null"]})", {"null", "\"x\""}, {"1"});
}

TEST_F(SchemaGrammarTest, LengthsOfStringsAndLists) {
  check(R"({"type":"string","minLength":2,"maxLength":3})", {"\"ab\"", "\"abc\""}, {"\"a\"", "\"abcd\""});
  check(R"({"type":"string","minLength":2})", {"\"ab\"", "\"abcdefgh\""}, {"\"a\""});
  check(R"({"type":"array","items":{"type":"integer"}})", {"[]", "[1]", "[1, 2,3]"}, {"[1,]", "[\"a\"]", "1"});
  check(R"({"type":"array","items":{"type":"integer"},"minItems":2,"maxItems":3})", {"[1,2]", "[1,2,3]"},
        {"[]", "[1]", "[1,2,3,4]"});
  check(R"({"type":"array","items":{"type":"null"},"maxItems":1})", {"[]", "[null]"}, {"[null,null]"});
  check(R"({"type":"array","items":{"type":"null"},"maxItems":0})", {"[]"}, {"[null]"});
  check(R"({"type":["array","string"],"minItems":1,"maxLength":1})", {"[1]", "\"a\""}, {"[]", "\"ab\""});
}

TEST_F(SchemaGrammarTest, ObjectsKeepTheOrderAndTheRequired) {
  const std::string schema = R"({"type":"object","properties":{
      "z":{"type":"integer"},"a":{"type":"boolean"},"m":{"type":"null"}},"required":["z","m"],
      "additionalProperties":false})";
  check(schema, {R"({"z":1,"a":true,"m":null})", R"({"z": 1, "m": null})", "{\n  \"z\": 1,\n  \"m\": null\n}"},
        {R"({"a":true,"z":1,"m":null})", R"({"z":1})", R"({"m":null})", R"({"z":1,"m":null,"x":1})", "{}",
         R"({"z":1,"m":null,})", R"({,"z":1,"m":null})"});
}

TEST_F(SchemaGrammarTest, OptionalPropertiesInEveryCombination) {
  const std::string schema = R"({"properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}}})";
  check(schema,
        {"{}", R"({"a":null})", R"({"b":null})", R"({"c":null})", R"({"a":null,"b":null})", R"({"a":null,"c":null})",
         R"({"b":null,"c":null})", R"({"a":null,"b":null,"c":null})"},
        {R"({"b":null,"a":null})", R"({"a":null "b":null})", R"({"a":null,})"});
}

TEST_F(SchemaGrammarTest, NamesAreQuoted) {
  check(R"({"type":"object","properties":{"a\"\\b\n":{"type":"null"}},"required":["a\"\\b\n"]})",
        {R"({"a\"\\b\n":null})"}, {R"({"a":null})"});
}

TEST_F(SchemaGrammarTest, ValuesByName) {
  check(R"({"enum":["red","green",3,null,{"a":[1]}]})", {"\"red\"", "3", "null", R"({"a":[1]})"}, {"red", "4"});
  check(R"({"const":"x\"y"})", {R"("x\"y")"}, {"\"x\""});
}

TEST_F(SchemaGrammarTest, Alternatives) {
  check(R"({"anyOf":[{"type":"integer"},{"type":"object","properties":{"a":{"type":"null"}},"required":["a"]}]})",
        {"5", R"({"a":null})"}, {"\"5\"", "{}"});
  check(R"({"allOf":[{"type":"null"}],"title":"x"})", {"null"}, {"1"});
}

TEST_F(SchemaGrammarTest, ReferencesAndRecursion) {
  check(R"({"$defs":{"tree":{"type":"object","properties":{"v":{"type":"integer"},
            "next":{"anyOf":[{"$ref":"#/$defs/tree"},{"type":"null"}]}},"required":["v","next"]}},
            "$ref":"#/$defs/tree"})",
        {R"({"v":1,"next":null})", R"({"v":1,"next":{"v":2,"next":{"v":3,"next":null}}})"},
        {R"({"v":1})", R"({"v":1,"next":{}})"});
  check(R"({"type":"array","items":{"$ref":"#"}})", {"[]", "[[],[[]]]"}, {"[1]"});
}

TEST_F(SchemaGrammarTest, MapsAndAnything) {
  check(R"({"type":"object"})", {"{}", R"({"a":[1,{"b":"c"}]})"}, {"[]"});
  check(R"({"type":"object","additionalProperties":{"type":"integer"}})", {"{}", R"({"a":1,"b":2})"}, {R"({"a":"b"})"});
  check(R"({"type":"object","additionalProperties":false})", {"{}"}, {R"({"a":1})"});
  check(R"({})", {"1", "[true]", R"({"x":null})"}, {"", "x"});
  check(R"({"items":true})", {"[1,\"a\"]"}, {"1"});
}

TEST_F(SchemaGrammarTest, JsonObjects) {
  const std::string grammar = json_object_grammar();
  EXPECT_TRUE(test::gbnf_matches(grammar, R"({"a": {"b": [1, "c", null]}})"));
  EXPECT_FALSE(test::gbnf_matches(grammar, "[1]"));
}

// Each of them took seconds and gigabytes, or more stack than there is.
TEST_F(SchemaGrammarTest, LargeSchemasAreReadInTime) {
  std::string nested = R"({"type":"null"})";
  for (int i = 0; i < 28; ++i) nested = R"({"type":["array","array"],"items":)" + nested + "}";
  EXPECT_LT(grammar_of(nested).size(), 10'000U);
  check(R"({"type":["array","null","array"],"items":{"type":"null"}})", {"[null]", "null"}, {"1"});

  std::string chain = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 4000; ++i) {
    chain += "\"d" + std::to_string(i) + R"(":{"$ref":"#/$defs/d)" + std::to_string(i + 1) + "\"},";
  }
  check(chain + R"("d4000":{"type":"null"}}})", {"null"}, {"1"});

  std::string values;
  for (int i = 0; i < 10'000; ++i) values += (i > 0 ? ",\"value " : "\"value ") + std::to_string(i) + "\"";
  grammar_of(R"({"enum":[)" + values + "]}");
  EXPECT_NE(refusal(R"({"enum":[")" + std::string(std::size_t{2} << 20, 'x') + R"("]})").find("too long"),
            std::string::npos);
  std::string properties;
  for (int i = 0; i < 4000; ++i) properties += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + R"(":{"type":"null"})";
  EXPECT_NE(refusal(R"({"properties":{)" + properties + "}}").find("more parts"), std::string::npos);
}

TEST_F(SchemaGrammarTest, WhatCannotBeDoneIsRefused) {
  EXPECT_NE(refusal(R"({"type":"string","pattern":"a+"})").find("'pattern'"), std::string::npos);
  EXPECT_NE(refusal(R"({"type":"integer","minimum":3})").find("'minimum'"), std::string::npos);
  EXPECT_NE(refusal(R"({"type":"object","properties":{"d":{"type":"string","format":"date"}}})").find("schema.d"),
            std::string::npos);
  for (const char* schema : {R"({"type":"strin"})",
                             R"({"type":7})",
                             R"({"type":[]})",
                             R"({"enum":[]})",
                             R"({"anyOf":[]})",
                             R"(false)",
                             R"(3)",
                             R"({"$ref":"#/$defs/none"})",
                             R"({"$ref":"http://x/y"})",
                             R"({"$ref":7})",
                             R"({"$ref":"#/$defs/~x"})",
                             R"({"type":"object","required":["a"]})",
                             R"({"type":"object","required":7})",
                             R"({"type":"object","properties":[]})",
                             R"({"type":"array","minItems":3,"maxItems":2})",
                             R"({"type":"array","minItems":-1})",
                             R"({"type":"string","maxLength":100000})",
                             R"({"allOf":[{"type":"null"},{"type":"null"}]})",
                             R"({"not":{}})",
                             R"({"type":["string","nul"]})",
                             R"({"type":["string","null"],"oops":1})",
                             R"({"anyOf":[{"type":"null"}],"type":"null"})"}) {
    refusal(schema);
  }
}

}  // namespace
}  // namespace winnow::server
