// JSON Schema to GBNF: what the grammars accept, by a matcher of the tests' own, and that libllama takes them.
#include "generate/schema_grammar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <memory>

#include "generate/gbnf_matcher.h"
#include "model/grammar_matcher.h"
#include "model/tiny_model.h"
#include "winnow/error.h"
#include "winnow/json_grammar.h"
#include "winnow/sampling.h"

namespace winnow {
namespace {

using OrderedJson = nlohmann::ordered_json;

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
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
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

// Numbers from -130 to 130, in steps of a quarter around the bounds, against the bounds themselves.
TEST_F(SchemaGrammarTest, NumbersBetweenBounds) {
  const std::vector<double> bounds = {-120.25, -100, -99, -10, -1, -0.5, 0, 0.25, 1, 7, 9, 10, 19.75, 99, 100, 127};
  const auto text_of = [](double value) { return OrderedJson(value).dump(); };
  int n_empty = 0;
  for (const double least : bounds) {
    for (const double most : bounds) {
      if (most < least || (std::lround(4 * (least + 3 * most)) % 7 != 0 && least != most)) continue;
      for (int excluded = 0; excluded < 4; ++excluded) {
        const bool no_least = (excluded & 1) != 0, no_most = (excluded & 2) != 0;
        const std::string keywords = std::string(no_least ? "\"exclusiveMinimum\":" : "\"minimum\":") + text_of(least) +
                                     (no_most ? ",\"exclusiveMaximum\":" : ",\"maximum\":") + text_of(most) + "}";
        for (const bool is_integer : {true, false}) {
          const std::string schema = (is_integer ? R"({"type":"integer",)" : R"({"type":"number",)") + keywords;
          SCOPED_TRACE(schema);
          std::string grammar;
          const auto is_inside = [&](double value) {
            return (no_least ? value > least : value >= least) && (no_most ? value < most : value <= most);
          };
          try {
            grammar = schema_grammar(OrderedJson::parse(schema));
          } catch (const Error& error) {
            EXPECT_NE(std::string(error.what()).find("no number lies between"), std::string::npos) << error.what();
            for (int i = -130; i <= 130; ++i) EXPECT_FALSE(is_integer && is_inside(i)) << i;
            EXPECT_TRUE(is_integer || least == most);
            ++n_empty;
            continue;
          }
          for (int i = 4 * -130; i <= 4 * 130; ++i) {
            const double value = i / 4.0;
            const bool is_near = std::abs(value - least) <= 1.5 || std::abs(value - most) <= 1.5;
            if (!is_near && i % 36 != 0) continue;
            const bool is_whole = i % 4 == 0;
            const std::string text = is_whole ? std::to_string(i / 4) : text_of(value);
            const bool expected = is_inside(value) && (is_whole || !is_integer);
            ASSERT_EQ(test::gbnf_matches(grammar, text), expected) << text << "\n" << grammar;
            if (is_whole && !is_integer) {
              ASSERT_EQ(test::gbnf_matches(grammar, text + ".00"), expected) << text;
            }
          }
        }
      }
    }
  }
  EXPECT_GT(n_empty, 10);
}

TEST_F(SchemaGrammarTest, NumbersWithOneBound) {
  check(R"({"type":"integer","minimum":0})", {"0", "7", "10", "9999999999999999"}, {"-1", "-0", "01", "1.5", "1e3"});
  check(R"({"type":"integer","exclusiveMinimum":0})", {"1", "10", "123456"}, {"0", "-1", ""});
  check(R"({"type":"integer","maximum":-5})", {"-5", "-6", "-10", "-123456"}, {"-4", "0", "5"});
  check(R"({"type":"integer","minimum":1.5,"maximum":3.5})", {"2", "3"}, {"1", "4", "2.5"});
  check(R"({"type":"integer","minimum":-9223372036854775808,"maximum":9223372036854775807})", {"0", "-7", "123456"},
        {"a"});
  check(R"({"type":"integer","minimum":1000000000000000})", {"1000000000000000"}, {"999999999999999"});
  check(R"({"type":"number","exclusiveMinimum":0})", {"0.5", "0.001", "1", "12.25"}, {"0", "0.0", "-1", "-0.5", "1e3"});
  check(R"({"type":"number","minimum":0,"maximum":1})", {"0", "1", "0.25", "1.0", "1.000"}, {"1.01", "-0.1", "2", "."});
  check(R"({"type":"number","maximum":-0.125})", {"-0.125", "-0.2", "-1", "-7.5"}, {"-0.1", "0", "-0.12", "1"});
  check(R"({"type":["integer","null"],"minimum":3})", {"3", "null"}, {"2"});
  for (const char* schema :
       {R"({"type":"integer","minimum":"3"})", R"({"type":"integer","minimum":4,"maximum":3})",
        R"({"type":"number","minimum":1,"exclusiveMaximum":1})",
        R"({"type":"integer","minimum":1e15,"maximum":1e300,"exclusiveMaximum":5})",
        R"({"type":"integer","minimum":2e15})", R"({"type":"number","minimum":1e-300})",
        R"({"type":"integer","exclusiveMinimum":true})", R"({"type":"integer","minimum":1,"exclusiveMinimum":1})",
        R"({"type":"null","minimum":1})"}) {
    refusal(schema);
  }
}

TEST_F(SchemaGrammarTest, Formats) {
  const auto format = [](const char* name) { return std::string(R"({"type":"string","format":")") + name + "\"}"; };
  check(format("date"), {"\"2024-02-29\"", "\"2023-02-28\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"2025-04-30\""},
        {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-02-30\"", "\"2024-13-01\"", "\"2024-00-01\"", "\"2024-04-31\"",
         "\"2024-1-1\"", "2024-01-01", "\"2024-01-32\"", "\"2024-01-00\""});
  check(format("time"), {"\"23:59:59Z\"", "\"00:00:00.5+01:30\""}, {"\"24:00:00Z\"", "\"12:60:00Z\"", "\"12:00:00\""});
  check(format("date-time"), {"\"2024-02-29T12:30:00Z\"", "\"2024-01-01T00:00:00.123456-08:00\""},
        {"\"2024-02-29 12:30:00Z\"", "\"2024-02-29\"", "\"2023-02-29T12:30:00Z\""});
  check(format("duration"), {"\"P1D\"", "\"PT5M\"", "\"P2DT3H4M5S\"", "\"PT7S\"", "\"PT1H5S\""},
        {"\"P\"", "\"PT\"", "\"P1DT\""});
  check(format("uuid"), {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567e89b12d3a456426614174000\"", "\"\""});
  check(format("email"), {"\"a@b.cd\"", "\"first.last+tag@mail.example.org\""},
        {"\"a@b\"", "\"@b.cd\"", "\"a..b@c.de\"", "\".a@b.cd\"", "\"a@-b.cd\"", "\"a b@c.de\""});
  check(format("ipv4"), {"\"127.0.0.1\"", "\"255.249.10.0\""}, {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""});
  check(format("uri"), {"\"https://example.org\"", "\"http://a.example.org:8080/x/y.html?z=1\""},
        {"\"ftp://x.org\"", "\"example\""});
  check(R"({"type":"string","format":"uri","minLength":1,"maxLength":2083})", {"\"https://example.org/\""}, {"\"\""});
  refusal(R"({"type":"string","format":"uri","maxLength":20})");
  refusal(R"({"type":"string","format":"uuid","minLength":37})");
  refusal(R"({"type":"string","format":7})");
}

// Against the grammar matcher that answers are held against: the tests' own takes classes of bytes only.
TEST_F(SchemaGrammarTest, Patterns) {
  static const test::TinyModel file;
  static const Tokenizer tokenizer(file.path());
  const auto matches = [&](const std::string& pattern, const std::string& text) {
    OrderedJson schema = {{"type", "string"}, {"pattern", pattern}};
    GrammarMatcher matcher(std::make_shared<const Grammar>(parse_grammar(schema_grammar(schema), tokenizer.vocab())),
                           tokenizer);
    for (const char byte : OrderedJson(text).dump()) {
      Token token = 0;
      while (tokenizer.token_text(token, true) != std::string(1, byte)) ++token;
      if (!matcher.allows(token)) return false;
      matcher.accept(token);
    }
    return matcher.allows(tokenizer.pieces().ends.at(0));
  };
  const auto check_pattern = [&](const char* pattern, const std::vector<std::string>& good,
                                 const std::vector<std::string>& bad) {
    for (const std::string& text : good) EXPECT_TRUE(matches(pattern, text)) << pattern << " " << text;
    for (const std::string& text : bad) EXPECT_FALSE(matches(pattern, text)) << pattern << " " << text;
  };
  check_pattern("^[A-Z]{2}\\d{3,4}$", {"AB123", "XY9876"}, {"AB12", "ab123", "AB12345", "xAB123", ""});
  check_pattern("ab+c", {"abc", "xxabbbcyy", "\u00e9abc"}, {"ac", "ab", ""});
  check_pattern("^a", {"a", "abc"}, {"ba", ""});
  check_pattern("a$", {"a", "bca"}, {"ab", ""});
  check_pattern("^(?:red|green|b(l|r)ue?)$", {"red", "green", "blue", "bru"}, {"yellow", "redgreen", ""});
  check_pattern("^a$|^b|c$", {"a", "bx", "xc"}, {"xa", "cx"});
  check_pattern("^.{2}$", {"ab", "\u00e9\u4e2d", "\"\\"}, {"a", "abc", "a\n"});
  check_pattern("^[^a-c\"]+$", {"xyz", "\u4e2d", "\\"}, {"a", "x\"", ""});
  check_pattern("^\"\\\\\\t\\n$", {"\"\\\t\n"}, {"\"\\", "tn"});
  check_pattern("^\\w+\\s\\W\\D\\S$", {"a_1 -xy", "A\t\u00e9 z"}, {"a-", "a  1x"});
  check_pattern("^[\\w.-]+@[\\d-]$", {"a.b-c@1", "x@-"}, {"a b@1", "@1"});
  check_pattern("^[\\u4e00-\\u9fff]*?$", {"", "\u4e2d\u6587"}, {"a"});
  check_pattern("^\\x41[\\]]\\/$", {"A]/"}, {"A"});
  check_pattern("", {"", "anything"}, {});
  check_pattern("^()$", {""}, {"a"});
  for (const char* bad :
       {"(?=a)b", "(?<n>a)", "\\1", "\\bword", "a^b",   "a$b",    "(^a)",    "(a",     "a)", "[a",  "*a",     "a**",
        "a{2,1}", "a{5000}", "a{",  "[z-a]",   "\\u12", "[\\d-z", "[a-\\d]", "\\p{L}", "[]", "a\\", "\\ud83d"}) {
    const std::string text = refusal(OrderedJson{{"type", "string"}, {"pattern", bad}}.dump());
    EXPECT_NE(text.find("'pattern'"), std::string::npos) << bad << ": " << text;
  }
  refusal(OrderedJson{{"type", "string"}, {"pattern", std::string(1001, 'a')}}.dump());
  refusal(OrderedJson{{"type", "string"}, {"pattern", std::string(200, '(') + std::string(200, ')')}}.dump());
  refusal(R"({"type":"string","pattern":"a","maxLength":3})");
  refusal(R"({"type":"string","pattern":7})");
}

// As pydantic writes them.
TEST_F(SchemaGrammarTest, SchemasOfPydantic) {
  check(R"({"properties":{"age":{"exclusiveMinimum":0,"maximum":150,"title":"Age","type":"integer"},
            "born":{"format":"date","title":"Born","type":"string"},
            "rate":{"anyOf":[{"maximum":1,"minimum":0,"type":"number"},{"type":"null"}],"default":null,"title":"Rate"}},
            "required":["age","born"],"title":"Person","type":"object"})",
        {R"({"age":150,"born":"1990-01-31"})", R"({"age": 1, "born": "1990-01-31", "rate": 0.5})"},
        {R"({"age":0,"born":"1990-01-31"})", R"({"age":151,"born":"1990-01-31"})", R"({"age":1,"born":"1990-02-30"})",
         R"({"age":1,"born":"1990-01-31","rate":1.5})"});
}

TEST_F(SchemaGrammarTest, WhatCannotBeDoneIsRefused) {
  EXPECT_NE(refusal(R"({"type":"string","minimum":3})").find("'minimum'"), std::string::npos);
  EXPECT_NE(refusal(R"({"type":"object","properties":{"d":{"type":"string","format":"dat"}}})").find("schema.d"),
            std::string::npos);
  EXPECT_NE(refusal(R"({"type":"string","format":"iri"})").find("date, time, date-time"), std::string::npos);
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

// From a text, whose bounds are checked before it is a schema.
TEST_F(SchemaGrammarTest, TextsAreBounded) {
  const auto refusal_of = [](const std::string& text) -> std::string {
    try {
      json_schema_grammar(text);
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      return error.what();
    }
    return "";
  };
  const std::string schema = R"({"type":"object","properties":{"b":{"type":"integer"},"a":{"type":"null"}}})";
  EXPECT_EQ(json_schema_grammar(schema), schema_grammar(OrderedJson::parse(schema)));
  EXPECT_TRUE(test::gbnf_matches(json_object_grammar(), R"({"a": [1, {}]})"));
  EXPECT_NE(refusal_of("").find("no JSON"), std::string::npos);
  EXPECT_NE(refusal_of("{\"type\":\"integer\"").find("no JSON"), std::string::npos);
  EXPECT_NE(refusal_of(std::string(1 << 21, ' ')).find("1 MiB"), std::string::npos);
  EXPECT_NE(refusal_of(std::string(200, '[') + std::string(200, ']')).find("64 levels"), std::string::npos);
  std::string names = "{\"a\":1", values = "[1";
  for (int i = 0; i < 5000; ++i) names += ",\"b" + std::to_string(i) + "\":1";
  for (int i = 0; i < 110'000; ++i) values += ",1";
  EXPECT_NE(refusal_of(names + "}").find("4096 names"), std::string::npos);
  EXPECT_NE(refusal_of(values + "]").find("100000 values"), std::string::npos);
}

}  // namespace
}  // namespace winnow
