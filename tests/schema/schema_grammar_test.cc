// JSON Schema to GBNF: the texts that the grammars accept, by a matcher of the tests' own, and that libllama accepts
// them.
#include "schema/schema_grammar.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <memory>

#include "model/tiny_model.h"
#include "sanitizers.h"
#include "schema/gbnf_matcher.h"
#include "text/grammar_matcher.h"
#include "thread_seconds.h"
#include "winnow/error.h"
#include "winnow/json_grammar.h"
#include "winnow/sampling.h"

namespace winnow {
namespace {

using OrderedJson = nlohmann::ordered_json;

class SchemaGrammarTest : public testing::Test {
 protected:
  // Returns the grammar of a schema and checks that libllama accepts it.
  static std::string grammar_of(const std::string& schema) {
    static const test::TinyModel file;
    static const std::shared_ptr<const Model> model = Model::load(file.path());
    const std::string grammar = schema_grammar(OrderedJson::parse(schema));
    EXPECT_NO_THROW(Sampler(model, {.temperature = 0, .grammar = grammar})) << grammar;
    return grammar;
  }
  // Like `check`, with the matcher that constrains answers; the tests' own matcher supports only classes of bytes.
  static void check_followed(const std::string& schema, const std::vector<std::string>& good,
                             const std::vector<std::string>& bad) {
    const std::string grammar = grammar_of(schema);
    for (const std::string& text : good) EXPECT_TRUE(follows(grammar, text)) << text << "\n" << schema;
    for (const std::string& text : bad) EXPECT_FALSE(follows(grammar, text)) << text << "\n" << schema;
  }
  static bool follows(const std::string& grammar, const std::string& text) {
    static const test::TinyModel file;
    static const Tokenizer tokenizer(file.path());
    GrammarMatcher matcher(std::make_shared<const Grammar>(parse_grammar(grammar, tokenizer.vocab())), tokenizer);
    return matcher.accept_text(text) && matcher.allows(tokenizer.pieces().ends.at(0));
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

// Each of these schemas once took seconds and gigabytes, or more than the whole stack.
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
  EXPECT_NE(refusal(R"({"enum":[")" + std::string(std::size_t{4} << 20, 'x') + R"("]})").find("too long"),
            std::string::npos);
  std::string properties;
  for (int i = 0; i < 2100; ++i) properties += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) + R"(":{"type":"null"})";
  EXPECT_NE(refusal(R"({"properties":{)" + properties + "}}").find("more than 2000 properties"), std::string::npos);
  // These schemas refer to themselves without end, or double with every level that is joined.
  EXPECT_NE(
      refusal(R"({"$ref":"#/$defs/a","$defs":{"a":{"$ref":"#/$defs/b"},"b":{"$ref":"#/$defs/a"}}})").find("itself"),
      std::string::npos);
  refusal(R"({"allOf":[{"$ref":"#"}]})");
  refusal(R"({"$defs":{"a":{"allOf":[{"$ref":"#/$defs/a"},{"minLength":1}]}},"$ref":"#/$defs/a"})");
  std::string doubled = R"({"$ref":"#/$defs/d0","$defs":{)";
  for (int i = 0; i < 40; ++i) {
    const std::string next = "{\"$ref\":\"#/$defs/d" + std::to_string(i + 1) + "\"}";
    doubled += "\"d" + std::to_string(i) + "\":{\"allOf\":[" + next + "," + next + "]},";
  }
  refusal(doubled + R"("d40":{"type":"null"}}})");
  std::string options;
  for (int i = 0; i < 12; ++i) {
    options +=
        std::string(i > 0 ? "," : "") + R"({"anyOf":[{"minLength":)" + std::to_string(i) + R"(},{"maxLength":9}]})";
  }
  // Long lists are intersected with each other.
  std::string many, names;
  constexpr int kMany = test::kHasSanitizers ? 10'000 : 40'000;
  for (int i = 0; i < kMany; ++i) many += (i > 0 ? ",\"v" : "\"v") + std::to_string(i) + "\"";
  for (int i = 0; i < kMany; ++i) names += std::string(i > 0 ? "," : "") + R"({"const":)" + std::to_string(i) + "}";
  grammar_of(R"({"allOf":[{"enum":[)" + many + R"(]},{"enum":[)" + many + "]}]}");
  refusal(R"({"allOf":[{"required":[)" + many + R"(]},{"required":[)" + many + "]}]}");
  grammar_of(R"({"anyOf":[)" + names + "]}");
  grammar_of(R"({"allOf":[)" + options + "]}");
  for (int i = 12; i < 40; ++i) options += R"(,{"anyOf":[{"minLength":)" + std::to_string(i) + R"(},{"maxLength":9}]})";
  EXPECT_NE(refusal(R"({"allOf":[)" + options + "]}").find("too many parts"), std::string::npos);
}

// Copies and look-ups that a conversion makes for each part of a schema count as steps, too.
TEST_F(SchemaGrammarTest, PartsThatAreJoinedAreCounted) {
  constexpr int kMany = test::kHasSanitizers ? 10'000 : 30'000;
  const auto name = [](int i) { return "a" + std::to_string(i); };
  const auto properties = [&](int first, int n) {
    OrderedJson all = OrderedJson::object();
    for (int i = first; i < first + n; ++i) all[name(i)] = true;
    return OrderedJson{{"properties", all}};
  };
  const auto expect_refused = [](const OrderedJson& schema) {
    EXPECT_NE(refusal(schema.dump()).find("too many parts"), std::string::npos);
  };
  const double start = test::thread_seconds();
  OrderedJson names = OrderedJson::array(), parts = OrderedJson::array(), blocks = OrderedJson::array();
  for (int i = 0; i < kMany; ++i) {
    names.push_back(name(i));
    parts.push_back({{"required", OrderedJson::array({name(i)})}});
  }
  for (int i = 0; i < 20; ++i) blocks.push_back(properties(2000 * i, 2000));
  expect_refused({{"allOf", parts}});
  expect_refused({{"allOf", blocks}});
  OrderedJson without_any = properties(0, 1000);
  without_any["type"] = "object";
  without_any["not"] = {{"required", names}};
  expect_refused(without_any);
  // The values of a list are compared with what else is said of them, which does not have the list in it.
  const OrderedJson values = {{"type", "string"}, {"minLength", 1}, {"enum", names}};
  std::vector<std::string> warnings;
  schema_grammar({{"type", "array"}, {"uniqueItems", true}, {"items", values}}, &warnings);
  ASSERT_EQ(warnings.size(), 1U);
  EXPECT_NE(warnings[0].find("'uniqueItems' is not enforced"), std::string::npos) << warnings[0];
  SchemaRules rules(SchemaRules::Use::kAdvice);
  rules.begin("the parameters", values);
  EXPECT_TRUE(rules.text(values, "here", "</end>").has_value());
  EXPECT_LT(test::thread_seconds() - start, test::kHasSanitizers ? 60 : 10);
}

// Compares numbers from -130 to 130, in steps of a quarter around the bounds, with the bounds themselves.
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
  for (const char* schema : {R"({"type":"integer","minimum":"3"})", R"({"type":"integer","minimum":4,"maximum":3})",
                             R"({"type":"number","minimum":1,"exclusiveMaximum":1})",
                             R"({"type":"integer","minimum":1e15,"maximum":1e300,"exclusiveMaximum":5})",
                             R"({"type":"integer","minimum":1e17})"}) {
    refusal(schema);
  }
  // zod's safe integers, 64-bit integers, several bounds of a kind, and bounds with more digits than numbers are
  // written with.
  check(R"({"type":"integer","minimum":-9007199254740991,"maximum":9007199254740991})",
        {"9007199254740991", "-9007199254740991", "0"}, {"9007199254740992", "9999999999999999"});
  check(R"({"type":"integer","exclusiveMinimum":0,"maximum":9223372036854775807})", {"1", "9999999999999999"}, {"0"});
  check(R"({"type":"integer","minimum":1,"exclusiveMinimum":1})", {"2"}, {"1"});
  check(R"({"type":"integer","minimum":1,"exclusiveMinimum":true})", {"2"}, {"1"});
  check(R"({"type":"integer","minimum":2e15})", {"2000000000000000"}, {"1999999999999999"});
  check(R"({"type":"number","minimum":0.30000000000000004,"maximum":1e300})", {"0.31", "5"}, {"0.3", "0.29"});
  check(R"({"type":"number","minimum":1e-300})", {"0.000000000000001", "1"}, {"0", "0.0"});
}

TEST_F(SchemaGrammarTest, Multiples) {
  struct Case {
    const char* step;
    double value;
    int n_digits;
  };
  for (const auto& [step, value, n_digits] : {Case{"3", 3, 0},
                                              {"5", 5, 0},
                                              {"10", 10, 0},
                                              {"7", 7, 0},
                                              {"100", 100, 0},
                                              {"0.5", 0.5, 1},
                                              {"0.01", 0.01, 2},
                                              {"0.25", 0.25, 2},
                                              {"1", 1, 0}}) {
    SCOPED_TRACE(step);
    const std::string grammar = grammar_of(std::string(R"({"type":"number","multipleOf":)") + step + "}");
    for (int i = -300; i <= 300; i += 7) {
      for (const int scale : {1, 100}) {
        const double number = static_cast<double>(i) / scale;
        std::string text = OrderedJson(number).dump();
        if (text.ends_with(".0")) text.resize(text.size() - 2);
        const double parts = number / value;
        const bool expected = std::abs(parts - std::round(parts)) < 1e-9;
        EXPECT_EQ(test::gbnf_matches(grammar, text), expected) << text;
        if (scale == 1) {
          EXPECT_EQ(test::gbnf_matches(grammar, text + ".00"), expected) << text;
        }
      }
    }
  }
  check(R"({"type":"integer","multipleOf":5,"minimum":3,"maximum":17})", {"5", "10", "15"}, {"0", "20", "7", "05"});
  check(R"({"type":"integer","multipleOf":0.5})", {"5", "-10"}, {"0.5"});
  check(R"({"type":"integer","allOf":[{"multipleOf":4},{"multipleOf":6}]})", {"12", "24", "0"}, {"4", "6", "8"});
  EXPECT_NE(refusal(R"({"type":"number","multipleOf":0.1234567})").find("'multipleOf'"), std::string::npos);
  refusal(R"({"type":"number","multipleOf":0})");
}

TEST_F(SchemaGrammarTest, Formats) {
  const auto format = [](const char* name) { return std::string(R"({"type":"string","format":")") + name + "\"}"; };
  check(format("date"), {"\"2024-02-29\"", "\"2023-02-28\"", "\"2000-02-29\"", "\"1999-12-31\"", "\"2025-04-30\""},
        {"\"2023-02-29\"", "\"1900-02-29\"", "\"2024-02-30\"", "\"2024-13-01\"", "\"2024-00-01\"", "\"2024-04-31\"",
         "\"2024-1-1\"", "2024-01-01", "\"2024-01-32\"", "\"2024-01-00\""});
  check(format("time"), {"\"23:59:59Z\"", "\"00:00:00.5+01:30\""}, {"\"24:00:00Z\"", "\"12:60:00Z\"", "\"12:00:00\""});
  check(format("date-time"), {"\"2024-02-29T12:30:00Z\"", "\"2024-01-01T00:00:00.123456-08:00\""},
        {"\"2024-02-29 12:30:00Z\"", "\"2024-02-29\"", "\"2023-02-29T12:30:00Z\""});
  check(format("duration"), {"\"P1D\"", "\"PT5M\"", "\"P2DT3H4M5S\"", "\"PT7S\"", "\"PT1H5M\""},
        {"\"P\"", "\"PT\"", "\"P1DT\"", "\"PT1H5S\""});
  check(format("uuid"), {"\"123e4567-e89b-12d3-a456-426614174000\""}, {"\"123e4567e89b12d3a456426614174000\"", "\"\""});
  check(format("email"), {"\"a@b.cd\"", "\"first.last+tag@mail.example.org\""},
        {"\"a@b\"", "\"@b.cd\"", "\"a..b@c.de\"", "\".a@b.cd\"", "\"a@-b.cd\"", "\"a b@c.de\""});
  check(format("ipv4"), {"\"127.0.0.1\"", "\"255.249.10.0\""}, {"\"256.0.0.1\"", "\"1.2.3\"", "\"01.2.3.4\""});
  check(format("uri"), {"\"https://example.org\"", "\"http://a.example.org:8080/x/y.html?z=1\""},
        {"\"example\"", "\"http://exa mple.org\"", "\"http://a.org:x/\"", "\"http://a.org/%zz\"", "\":a\""});
  check(format("uri"),
        {"\"ftp://x.org\"", "\"mailto:a@b.cd\"", "\"urn:isbn:12\"", "\"file:///etc/hosts\"",
         "\"https://example.org/a%20b?x=1&y=%C3%A9#part\""},
        {});
  check(format("hostname"), {"\"a\"", "\"example.org\"", "\"a-b.c1.de\""}, {"\"-a.b\"", "\"a..b\"", "\"a_b\"", "\"\""});
  check(format("ipv6"), {"\"::\"", "\"::1\"", "\"2001:db8::ff00:42:8329\"", "\"1:2:3:4:5:6:7:8\"", "\"fe80::\""},
        {"\"1:2:3\"", "\":::\"", "\"1::2::3\"", "\"12345::\"", "\"1:2:3:4:5:6:7:8:9\""});
  check(format("uri-reference"), {"\"/a/b?c\"", "\"a/b:c\"", "\"#x\"", "\"//a.org/\"", "\"http://a.org\"", "\"\""},
        {"\"1:b\"", "\"//a.org:x/\"", "\"a b\""});
  check(R"({"type":"string","format":"uri","minLength":1,"maxLength":2083})", {"\"https://example.org/\""}, {"\"\""});
  check(R"({"type":"string","format":"uri","maxLength":20})", {"\"https://example.org\""},
        {"\"https://example.org/ab\""});
  check(R"({"type":"string","format":"email","maxLength":12})", {"\"ab@cdef.org\""}, {"\"abcd@efgh.org\"", "\"abc\""});
  check(R"({"type":"string","format":"what-we-call-it"})", {"\"anything\""}, {"1"});
  refusal(R"({"type":"string","format":"uuid","minLength":37})");
  refusal(R"({"type":"string","format":7})");
}

// Uses the grammar matcher that constrains answers, because the tests' own matcher supports only classes of bytes.
TEST_F(SchemaGrammarTest, Patterns) {
  const auto matches = [](const std::string& pattern, const std::string& text) {
    const OrderedJson schema = {{"type", "string"}, {"pattern", pattern}};
    return follows(schema_grammar(schema), OrderedJson(text).dump());
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
  // Anchors within patterns, look-ahead, word boundaries, Unicode classes.
  check_pattern("(^a|b)c$", {"ac", "xbc"}, {"xac", "a"});
  check_pattern("^(?=.*[A-Z])(?=.*\\d)[A-Za-z\\d]{4,}$", {"Abc1", "1abC"}, {"abc1", "ABCD", "A1b", "Ab_1"});
  check_pattern("^(?!.*--)(?!-)[a-z-]+$", {"a-b", "abc-"}, {"a--b", "-a", ""});
  check_pattern("^(?:(?!end).)*$", {"en", "the"}, {"the end", "end"});
  check_pattern("\\bhat\\b", {"hat", "the hat!", "hat-box"}, {"chat", "hats", "hat_"});
  check_pattern("^\\w+\\b.\\B", {"ab--", "ab-"}, {"ab-a", "ab"});
  check_pattern("^\\p{Lu}\\p{L}+\\P{L}$", {"\u00c9t\u00e9 ", "Ab1"}, {"\u00e9t\u00e9 ", "Abc"});
  check_pattern("^[\\p{Script=Greek}\\s]+$", {"\u03b1\u03b2 \u03b3"}, {"abc"});
  check_pattern("^(\\p{Extended_Pictographic}|\\p{Emoji_Component})+$", {"\U0001F600", "\u2764\ufe0f"}, {"a", ""});
  check_pattern("^\\u{1F600}[\\ud83d\\ude00]$", {"\U0001F600\U0001F600"}, {"\U0001F600"});
  check_pattern("(?i)^straSSe$", {"strasse", "STRASSE"}, {"stras"});
  check_pattern("^(?<year>\\d{4})-(?P<month>\\d\\d)$", {"2024-10"}, {"24-10"});
  check_pattern("^a{2,$", {"a{2,"}, {"aa"});
  check_pattern("^[a-\\d]+$", {"a-1"}, {"b"});
  check_pattern("^(a?){3000}$", {"aaa", ""}, {"b"});
  // Patterns of zod, TypeBox and pydantic.
  check_pattern(
      "^(?!\\.)(?!.*\\.\\.)([A-Za-z0-9_'+\\-\\.]*)[A-Za-z0-9_+-]@([A-Za-z0-9][A-Za-z0-9\\-]*\\.)+[A-Za-z]{2,}$",
      {"a@b.cd", "first.last@mail.example.org"}, {".a@b.cd", "a..b@c.de", "a@b"});
  check_pattern("^(?!^[-+.]*$)[+-]?0*\\d*\\.?\\d*$", {"12.50", "-3", "0"}, {"", "-", ".", "1e5"});
  check_pattern(
      "^([0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[1-8][0-9a-fA-F]{3}-[89abAB][0-9a-fA-F]{3}-[0-9a-fA-F]{12}|"
      "00000000-0000-0000-0000-000000000000|ffffffff-ffff-ffff-ffff-ffffffffffff)$",
      {"123e4567-e89b-12d3-a456-426614174000"}, {"123e4567-e89b-92d3-a456-426614174000"});
  for (const char* bad : {"(?<=a)b", "(?<!a)b", "(a)\\1", "(a", "a)", "[a", "*a", "a**", "a{2,1}", "[z-a]", "\\u12",
                          "\\p{Nothing}", "[]", "a\\", "a++", "(?=a)*", "\\q", "(?>a)"}) {
    const std::string text = refusal(OrderedJson{{"type", "string"}, {"pattern", bad}}.dump());
    EXPECT_NE(text.find("'pattern'"), std::string::npos) << bad << ": " << text;
  }
  // Patterns that no text matches, and those that would take too much work.
  for (const char* bad : {"(?=a)b", "a^b", "a$b", "^(?!a)a$"}) {
    const std::string text = refusal(OrderedJson{{"type", "string"}, {"pattern", bad}}.dump());
    EXPECT_NE(text.find("nothing matches"), std::string::npos) << bad << ": " << text;
  }
  for (const char* bad : {"(?=.{90000}x)y", "^(?=(a|b)*a(a|b){40}$)", "^((a{1,99}){1,99}){1,99}(?=b)"}) {
    const std::string text = refusal(OrderedJson{{"type", "string"}, {"pattern", bad}}.dump());
    EXPECT_NE(text.find("too large"), std::string::npos) << bad << ": " << text;
  }
  refusal(OrderedJson{{"type", "string"}, {"pattern", std::string(10'001, 'a')}}.dump());
  refusal(OrderedJson{{"type", "string"}, {"pattern", std::string(200, '(') + std::string(200, ')')}}.dump());
  refusal(R"({"type":"string","pattern":7})");
}

// Each pattern takes a tenth of a second, and their total is bounded.
TEST_F(SchemaGrammarTest, ManyLargePatternsAreRefusedInTime) {
  std::string properties;
  for (int i = 0; i < 1000; ++i) {
    properties += (i > 0 ? ",\"p" : "\"p") + std::to_string(i) +
                  R"(":{"type":"string","pattern":"^(?=(a|b)*a(a|b){12}$)[ab]*c$"})";
  }
  const std::string schema = R"({"type":"object","properties":{)" + properties + "}}";
  EXPECT_NE(refusal(schema).find("too large"), std::string::npos);
  const OrderedJson parsed = OrderedJson::parse(schema);
  SchemaRules advice(SchemaRules::Use::kAdvice);
  advice.begin("the parameters", parsed);
  EXPECT_FALSE(advice.value(parsed, "here").empty());
  EXPECT_FALSE(advice.warnings().empty());
  grammar_of(R"({"type":"string","pattern":"a","maxLength":900})");
}

TEST_F(SchemaGrammarTest, ConditionsOfTexts) {
  check_followed(R"({"type":"string","pattern":"^[a-z]+$","minLength":2,"maxLength":3})", {"\"ab\"", "\"abc\""},
                 {"\"a\"", "\"abcd\"", "\"AB\""});
  check_followed(R"({"type":"string","pattern":"a","maxLength":3})", {"\"a\"", "\"bab\""},
                 {"\"bbbb\"", "\"baaa\"", "\"b\""});
  check_followed(R"({"type":"string","pattern":"^(ab|c)*$","maxLength":4})", {"\"\"", "\"abab\"", "\"abc\""},
                 {"\"ababc\"", "\"a\""});
  check_followed(R"({"type":"string","allOf":[{"pattern":"^a"},{"pattern":"z$"}]})", {"\"az\"", "\"abz\""},
                 {"\"a\"", "\"z\""});
  check_followed(R"({"type":"string","format":"date","pattern":"^2024-"})", {"\"2024-02-29\""},
                 {"\"2023-02-28\"", "\"2024-02-30\""});
  check_followed(R"({"type":"string","format":"time","pattern":"^(?:[01]\\d|2[0-3]):[0-5]\\d$"})", {"\"12:30\""},
                 {"\"24:00\""});
  check_followed(R"({"type":"string","maxLength":524288})", {"\"a\""}, {"1"});
  check_followed(R"({"type":"string","pattern":"^\\S+$","maxLength":65536})", {"\"a\""}, {"\"a b\""});
  check_followed(R"({"enum":["abc","b",1,null],"pattern":"^a","type":["string","null"]})", {"\"abc\"", "null"},
                 {"\"b\"", "1"});
  check_followed(R"({"type":"array","items":{"type":"integer"},"maxItems":100000})", {"[1,2]"}, {"[a]"});
}

TEST_F(SchemaGrammarTest, WhatMustNotBe) {
  check_followed(R"({"type":"string","not":{"enum":["no","never"]}})", {"\"yes\"", "\"nope\"", "\"\""},
                 {"\"no\"", "\"never\""});
  check_followed(R"({"type":"string","not":{"pattern":"^a"}})", {"\"ba\"", "\"\""}, {"\"a\"", "\"ab\""});
  check_followed(R"({"type":"string","not":{"minLength":3}})", {"\"ab\""}, {"\"abc\""});
  check_followed(R"({"type":"string","not":{"format":"uuid"},"maxLength":40})", {"\"x\""},
                 {"\"123e4567-e89b-12d3-a456-426614174000\""});
  check_followed(R"({"type":"integer","not":{"const":5},"minimum":3,"maximum":7})", {"3", "4", "6"}, {"5", "8"});
  check_followed(R"({"type":"number","not":{"enum":[0]}})", {"1", "0.5", "-1"}, {"0", "0.0", "-0"});
  check_followed(R"({"type":"number","not":{"minimum":10}})", {"9.5", "-3"}, {"10", "11"});
  check_followed(R"({"not":{"type":"string"}})", {"1", "null", "[]", "{}"}, {"\"a\""});
  check_followed(R"({"not":{"type":["object","array"]}})", {"1", "\"a\""}, {"{}", "[]"});
  check_followed(R"({"not":{"const":"x"}})", {"1", "\"y\"", "{}"}, {"\"x\""});
  check_followed(R"({"enum":["a","b",3],"not":{"const":"b"}})", {"\"a\"", "3"}, {"\"b\""});
  check_followed(R"({"type":"boolean","not":{"const":true}})", {"false"}, {"true"});
  check_followed(R"({"properties":{"a":{"type":"null"},"b":{"type":"null"}},"not":{"required":["a"]}})",
                 {"{}", R"({"b":null})"}, {R"({"a":null})"});
  check_followed(R"({"type":"string","not":{"anyOf":[{"const":"a"},{"pattern":"b"}]}})", {"\"c\""},
                 {"\"a\"", "\"ab\""});
  check_followed(R"({"type":"string","not":{"not":{"const":"a"}}})", {"\"a\""}, {"\"b\""});
  refusal(R"({"not":{}})");
  refusal(R"({"type":"array","not":{"minItems":2}})");
  refusal(R"({"type":"object","not":{"const":{}}})");
}

TEST_F(SchemaGrammarTest, SchemasAreJoined) {
  check(R"({"allOf":[{"properties":{"a":{"type":"integer"}},"required":["a"]},{"properties":{"b":{"type":"null"}}}]})",
        {R"({"a":1,"b":null})", R"({"a":1})"}, {R"({"b":null})", "{}"});
  check(R"({"$defs":{"base":{"properties":{"a":{"type":"integer"}},"required":["a"]}},
            "allOf":[{"$ref":"#/$defs/base"}],"properties":{"a":{"minimum":5},"b":{"type":"null"}},"required":["b"]})",
        {R"({"a":5,"b":null})"}, {R"({"a":4,"b":null})", R"({"a":5})"});
  check(R"({"properties":{"a":{"type":"null"},"b":{"type":"null"}},"anyOf":[{"required":["a"]},{"required":["b"]}]})",
        {R"({"a":null})", R"({"b":null})", R"({"a":null,"b":null})"}, {"{}"});
  check(R"({"properties":{"a":{"type":"string"},"b":{"$ref":"#/properties/a"}},"required":["b"]})", {R"({"b":"x"})"},
        {R"({"b":1})"});
  check(R"({"$defs":{"node":{"properties":{"v":{"type":"integer"},"next":{"allOf":[{"$ref":"#/$defs/node"},
            {"properties":{"v":{"maximum":9}}}]}},"required":["v"]}},"$ref":"#/$defs/node"})",
        {R"({"v":10,"next":{"v":9,"next":{"v":1}}})"}, {R"({"v":10,"next":{"v":10}})"});
  // TypeBox's recursive types, OpenAPI's null, annotations of all sorts.
  check(
      R"({"$id":"T0","type":"object","properties":{"id":{"type":"string"},"nodes":{"type":"array","items":{"$ref":"T0"}}},
            "required":["id","nodes"]})",
      {R"({"id":"a","nodes":[{"id":"b","nodes":[]}]})"}, {R"({"id":"a","nodes":[1]})"});
  check(R"({"type":"string","nullable":true,"x-order":3,"description":"d"})", {"null", "\"a\""}, {"1"});
  check(R"({"type":"string","enum":["a"],"nullable":true})", {"null", "\"a\""}, {"\"b\""});
  check(R"({"type":"integer","minLength":3,"oops":true})", {"1"}, {"\"a\""});
  check(R"({"type":"object","required":["a"],"additionalProperties":{"type":"null"}})", {R"({"a":null})"}, {"{}"});
  refusal(R"({"allOf":[{"type":"string"},{"type":"integer"}]})");
  refusal(R"({"enum":["a"],"type":"integer"})");
}

TEST_F(SchemaGrammarTest, TuplesAndSets) {
  check(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"minItems":2,"maxItems":2})",
        {"[1,\"a\"]"}, {"[1]", "[\"a\",1]", "[1,\"a\",2]", "[]"});
  check(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}]})", {"[1,\"a\"]"},
        {"[1]", "[1,\"a\",2]"});
  check(R"({"type":"array","prefixItems":[{"type":"integer"},{"type":"string"}],"minItems":1})", {"[1]", "[1,\"a\"]"},
        {"[]", "[\"a\"]"});
  check(R"({"type":"array","prefixItems":[{"type":"string"}],"items":{"type":"null"},"maxItems":3})",
        {"[\"a\"]", "[\"a\",null,null]"}, {"[null]", "[\"a\",null,null,null]", "[]"});
  check(R"({"type":"array","items":[{"type":"null"},{"type":"boolean"}],"additionalItems":false})", {"[null,true]"},
        {"[null,true,1]"});
  check(R"({"type":"array","items":{"enum":["a","b","c"]},"uniqueItems":true,"minItems":1})",
        {"[\"a\"]", "[\"c\",\"a\"]", "[\"b\",\"c\",\"a\"]"}, {"[]", "[\"a\",\"a\"]", "[\"a\",\"b\",\"a\"]"});
  check(R"({"allOf":[{"prefixItems":[{"minimum":3}]}],"items":{"minimum":5}})", {"[5,5]"}, {"[3,5]", "[5,3]"});
  check(R"({"type":"array","items":{"type":"string"},"uniqueItems":true})", {"[\"a\",\"b\"]"}, {"[1]"});
}

TEST_F(SchemaGrammarTest, NamesOfObjects) {
  check(R"({"type":"object","propertyNames":{"pattern":"^[a-z]+$"},"additionalProperties":{"type":"integer"}})",
        {"{}", R"({"ab":1})"}, {R"({"A":1})", R"({"a":"b"})"});
  check(
      R"({"type":"object","propertyNames":{"enum":["a","b"]},"additionalProperties":{"type":"integer"},"required":["a"]})",
      {R"({"a":1})", R"({"a":1,"b":2})"}, {R"({"b":2})", R"({"a":1,"c":2})"});
  check(R"({"type":"object","patternProperties":{"^n_":{"type":"integer"},"^s_":{"type":"string"}},)"
        R"("additionalProperties":false})",
        {R"({"n_a":1,"s_b":"x"})", "{}"}, {R"({"n_a":"x"})", R"({"b":1})"});
  check(R"({"type":"object","additionalProperties":{"type":"null"},"minProperties":2,"maxProperties":3})",
        {R"({"a":null,"b":null})"}, {"{}", R"({"a":null})", R"({"a":null,"b":null,"c":null,"d":null})"});
  check(R"({"properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"minProperties":2})",
        {R"({"a":null,"c":null})", R"({"a":null,"b":null,"c":null})"}, {"{}", R"({"b":null})"});
  check(
      R"({"properties":{"a":{"type":"null"},"b":{"type":"null"},"c":{"type":"null"}},"required":["c"],"maxProperties":2})",
      {R"({"c":null})", R"({"a":null,"c":null})"}, {R"({"a":null,"b":null,"c":null})", R"({"a":null})"});
  refusal(R"({"properties":{"a":{"type":"null"}},"minProperties":2})");
  check(R"({"properties":{"foo":{"type":"array","maxItems":2}},"patternProperties":{"f.o":{"minItems":1}}})",
        {R"({"foo":[1]})"}, {R"({"foo":[]})"});
  check(R"({"type":"object","unevaluatedProperties":false})", {"{}"}, {R"({"a":1})"});
}

// Schemas of well-known generators, with values that follow them and values that do not (tests/data/schemas).
TEST_F(SchemaGrammarTest, SchemasOfMakers) {
  int n_files = 0;
  for (const auto& entry : std::filesystem::directory_iterator(WINNOW_SCHEMAS)) {
    SCOPED_TRACE(entry.path().filename().string());
    const OrderedJson file = OrderedJson::parse(std::ifstream(entry.path()));
    const std::string grammar = grammar_of(file["schema"].dump());
    for (const OrderedJson& value : file["good"]) EXPECT_TRUE(follows(grammar, value.dump())) << value;
    for (const OrderedJson& value : file["bad"]) EXPECT_FALSE(follows(grammar, value.dump())) << value;
    EXPECT_FALSE(file["good"].empty() || file["bad"].empty());
    ++n_files;
  }
  EXPECT_GE(n_files, 12);
}

TEST_F(SchemaGrammarTest, SchemasOfPydantic) {
  check(R"({"properties":{"age":{"exclusiveMinimum":0,"maximum":150,"title":"Age","type":"integer"},
            "born":{"format":"date","title":"Born","type":"string"},
            "rate":{"anyOf":[{"maximum":1,"minimum":0,"type":"number"},{"type":"null"}],"default":null,"title":"Rate"}},
            "required":["age","born"],"title":"Person","type":"object"})",
        {R"({"age":150,"born":"1990-01-31"})", R"({"age": 1, "born": "1990-01-31", "rate": 0.5})"},
        {R"({"age":0,"born":"1990-01-31"})", R"({"age":151,"born":"1990-01-31"})", R"({"age":1,"born":"1990-02-30"})",
         R"({"age":1,"born":"1990-01-31","rate":1.5})"});
}

// Exactly one of several schemas must match, which is stricter than any of them.
TEST_F(SchemaGrammarTest, ExactlyOne) {
  check(R"({"oneOf":[{"type":"integer"},{"type":"string","maxLength":1},{"type":"null"}]})", {"1", "\"a\"", "null"},
        {"true", "\"ab\""});
  // Options differ in a constant property, required or with a default, as in unions of pydantic and zod.
  const std::string pets = R"({"$defs":{"Cat":{"type":"object","properties":{"pet":{"const":"cat"},"n":{"type":"null"}},
      "required":["pet"]},"Dog":{"type":"object","properties":{"pet":{"enum":["dog","wolf"]},"n":{"type":"null"}}}},
      "discriminator":{"propertyName":"pet"},"oneOf":[{"$ref":"#/$defs/Cat"},{"$ref":"#/$defs/Dog"}]})";
  check(pets, {R"({"pet":"cat"})", R"({"pet":"wolf","n":null})"}, {R"({"n":null})", "{}", R"({"pet":"cow"})"});
  check(R"({"$defs":{"e":{"oneOf":[{"type":"object","properties":{"k":{"const":"n"}}},
            {"type":"object","properties":{"k":{"const":"m"},"of":{"$ref":"#/$defs/e"}},"required":["of"]}]}},
            "$ref":"#/$defs/e"})",
        {R"({"k":"n"})", R"({"k":"m","of":{"k":"m","of":{"k":"n"}}})"}, {R"({"of":{"k":"n"}})", R"({"k":"m"})"});
  // Options differ in a property that only one of them requires.
  const std::string either = R"({"type":"object","properties":{"a":{"type":"null"},"b":{"type":"null"},
      "c":{"type":"null"}},"oneOf":[{"required":["a"]},{"required":["b"]}]})";
  check(either, {R"({"a":null})", R"({"b":null,"c":null})"}, {R"({"a":null,"b":null})", "{}", R"({"c":null})"});
  check(R"({"oneOf":[{"properties":{"a":{"type":"null"}},"required":["a"]},
            {"properties":{"b":{"type":"null"}},"required":["b"]}]})",
        {R"({"a":null})", R"({"b":null})"}, {R"({"a":null,"b":null})"});
  check(R"({"oneOf":[{"type":"object","properties":{"a":{"type":"null"}},"required":["a"]},
            {"type":"object","properties":{"b":{"type":"null"}},"additionalProperties":false}]})",
        {R"({"a":null})", R"({"b":null})", "{}"}, {R"({"a":null,"b":null})"});
  // Options differ in values, bounds, patterns and formats.
  check(R"({"oneOf":[{"type":"integer","maximum":0},{"type":"integer","minimum":1}]})", {"0", "1"}, {"0.5"});
  check(R"({"oneOf":[{"type":"string","pattern":"^a"},{"type":"string","pattern":"^b"},{"enum":["c",1]}]})",
        {"\"ax\"", "\"bx\"", "\"c\"", "1"}, {"\"x\"", "2"});
  check(R"({"type":"string","oneOf":[{"format":"ipv4"},{"format":"date"}]})", {"\"1.2.3.4\"", "\"2020-01-01\""},
        {"\"\""});
  check(R"({"oneOf":[{"type":"array","maxItems":1},{"type":"array","minItems":2}]})", {"[]", "[1]", "[1,2]"}, {"1"});
  const std::pair<const char*, const char*> overlapping[] = {
      {R"({"oneOf":[{"type":"integer","multipleOf":3},{"type":"integer","multipleOf":5}]})", "15"},
      {R"({"oneOf":[{"type":"null"},{"type":"number"},{"type":"integer"}]})", "1"},
      {R"({"oneOf":[{"type":"string","pattern":"a"},{"type":"string","pattern":"b"}]})", "\"ab\""},
      {R"({"oneOf":[{"type":"array","items":{"type":"null"}},{"type":"array","items":{"type":"string"}}]})", "[]"},
      {R"({"oneOf":[{"properties":{"a":{"type":"null"}},"required":["a"]},
           {"properties":{"a":{"type":"null"},"b":{"type":"null"}},"required":["a"]}]})",
       R"({"a":null})"}};
  for (const auto& [schema, text] : overlapping) {
    EXPECT_NE(refusal(schema).find("'oneOf'"), std::string::npos) << refusal(schema);
    std::vector<std::string> warnings;
    const std::string grammar = schema_grammar(OrderedJson::parse(schema), &warnings, SchemaRules::Use::kAdvice);
    EXPECT_TRUE(test::gbnf_matches(grammar, text)) << schema;
    ASSERT_FALSE(warnings.empty()) << schema;
    EXPECT_NE(warnings[0].find("'oneOf'"), std::string::npos) << warnings[0];
  }
}

// Unevaluated properties are those that nothing in the same schema mentions; surrounding schemas do not count.
TEST_F(SchemaGrammarTest, UnevaluatedProperties) {
  check(R"({"allOf":[{"properties":{"a":{"type":"null"}}}],"properties":{"b":{"type":"null"}},
            "unevaluatedProperties":false})",
        {R"({"b":null,"a":null})", "{}"}, {R"({"c":null})"});
  check(R"({"allOf":[{"properties":{"a":{"type":"null"}},"unevaluatedProperties":false}],
            "properties":{"b":{"type":"null"}}})",
        {R"({"a":null})", "{}"}, {R"({"b":null})", R"({"b":null,"a":null})"});
  check(R"({"$defs":{"x":{"properties":{"a":{"type":"null"}},"unevaluatedProperties":false}},
            "$ref":"#/$defs/x","properties":{"b":{"type":"null"}}})",
        {R"({"a":null})"}, {R"({"a":null,"b":null})"});
  check(R"({"$defs":{"x":{"properties":{"a":{"type":"null"}}}},"$ref":"#/$defs/x",
            "properties":{"b":{"type":"null"}},"unevaluatedProperties":false})",
        {R"({"a":null,"b":null})"}, {R"({"c":null})"});
  check(R"({"anyOf":[{"properties":{"a":{"type":"null"}},"required":["a"]},
            {"properties":{"b":{"type":"null"}},"required":["b"]}],"unevaluatedProperties":false})",
        {R"({"a":null})", R"({"b":null})"}, {R"({"a":null,"b":null})", "{}", R"({"c":null})"});
  check(R"({"type":"object","unevaluatedProperties":{"type":"null"}})", {R"({"a":null})", "{}"}, {R"({"a":1})"});
  EXPECT_NE(refusal(R"({"allOf":[{"anyOf":[{"properties":{"a":{"type":"null"}}},{"required":["c"]}],
                        "unevaluatedProperties":false}],"properties":{"b":{"type":"null"}}})")
                .find("'unevaluatedProperties'"),
            std::string::npos);
  refusal(R"({"allOf":[{"properties":{"a":{}},"unevaluatedProperties":false}],"required":["b"]})");
}

// As a promise, a schema is refused with the name of the unsupported keyword; as advice, the keyword is dropped with a
// warning.
TEST_F(SchemaGrammarTest, WhatCannotBeDoneIsRefused) {
  const std::vector<std::pair<std::string, std::string>> unsupported = {
      {R"({"type":"object","properties":{"d":{"if":{"type":"null"},"then":{"const":1}}}})", "'if'"},
      {R"({"type":"array","contains":{"type":"null"}})", "'contains'"},
      {R"({"type":"array","contains":{"type":"null"},"minContains":2})", "'contains'"},
      {R"({"type":"object","dependentRequired":{"a":["b"]}})", "'dependentRequired'"},
      {R"({"type":"object","dependentSchemas":{"a":{"required":["b"]}}})", "'dependentSchemas'"},
      {R"({"type":"object","properties":{"a":{"type":"null"}},"propertyNames":{"if":{"const":"a"},"then":false}})",
       "'if'"},
      {R"({"type":"array","items":{"enum":["a","b"],"if":{"const":"a"},"then":false},"uniqueItems":true})", "'if'"},
      {R"({"type":"string","pattern":"(a)\\1"})", "'pattern'"},
      {R"({"type":"array","not":{"minItems":2}})", "'not'"},
      {R"({"type":"number","multipleOf":0.1234567})", "'multipleOf'"},
      {R"({"type":"strin"})", "'strin'"}};
  for (const auto& [schema, name] : unsupported) {
    EXPECT_NE(refusal(schema).find(name), std::string::npos) << refusal(schema);
    const OrderedJson parsed = OrderedJson::parse(schema);
    SchemaRules advice(SchemaRules::Use::kAdvice);
    advice.begin("the parameters", parsed);
    EXPECT_FALSE(advice.value(parsed, "here").empty());
    ASSERT_FALSE(advice.warnings().empty()) << schema;
    EXPECT_NE(advice.warnings()[0].find(name), std::string::npos) << advice.warnings()[0];
  }
  EXPECT_NE(refusal(unsupported[0].first).find("schema.d"), std::string::npos);
  // Keywords that are ignored, as JSON Schema specifies, are reported as warnings.
  std::vector<std::string> warnings;
  schema_grammar(OrderedJson::parse(R"({"type":"string","requird":[],"format":"dat","x-y":1})"), &warnings);
  ASSERT_EQ(warnings.size(), 2U);
  EXPECT_NE(warnings[0].find("'requird'"), std::string::npos);
  EXPECT_NE(warnings[1].find("dat"), std::string::npos);
  for (const char* schema : {R"({"type":7})", R"({"type":[]})", R"({"enum":[]})", R"({"anyOf":[]})", R"(false)", R"(3)",
                             R"({"$ref":"#/$defs/none"})", R"({"$ref":"http://x/y"})", R"({"$ref":7})",
                             R"({"$ref":"#/$defs/~x"})", R"({"type":"object","required":7})",
                             R"({"type":"object","properties":[]})", R"({"type":"array","minItems":3,"maxItems":2})",
                             R"({"type":"array","minItems":-1})", R"({"type":"string","minLength":"3"})",
                             R"({"type":"string","minLength":4,"maxLength":2})", R"({"type":["string","nul"]})"}) {
    refusal(schema);
  }
}

// json_schema_grammar checks the bounds of a text before it becomes a schema.
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
  EXPECT_NE(refusal_of("").find("not JSON"), std::string::npos);
  EXPECT_NE(refusal_of("{\"type\":\"integer\"").find("not JSON"), std::string::npos);
  EXPECT_NE(refusal_of(std::string(std::size_t{5} << 20, ' ')).find("4 MiB"), std::string::npos);
  EXPECT_NE(refusal_of(std::string(200, '[') + std::string(200, ']')).find("64 levels"), std::string::npos);
  std::string names = "{\"a\":1", values = "[1";
  std::string many = "[";
  for (int i = 0; i < 5000; ++i) names += ",\"b" + std::to_string(i) + "\":1";
  for (int i = 0; i < 60'000; ++i) many += "{\"a\":1},";
  for (int i = 0; i < 110'000; ++i) values += ",1";
  EXPECT_NE(refusal_of(names + "}").find("2000 names"), std::string::npos);
  EXPECT_NE(refusal_of(many + "1]").find("50000 names"), std::string::npos);
  EXPECT_NE(refusal_of(values + "]").find("100000 values"), std::string::npos);
}

}  // namespace
}  // namespace winnow
