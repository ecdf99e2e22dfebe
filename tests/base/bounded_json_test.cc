// JSON from outside: what it says, its limits, and that no shape of it takes long.
#include "base/bounded_json.h"

#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "base/json_file.h"

namespace winnow {
namespace {

using Reason = JsonRefusal::Reason;

template <typename Json>
class BoundedJson : public testing::Test {};
using Kinds = testing::Types<nlohmann::json, nlohmann::ordered_json>;
TYPED_TEST_SUITE(BoundedJson, Kinds);

template <typename Json>
std::optional<JsonRefusal> refusal_of(const std::string& text, const JsonLimits& limits = {}) {
  try {
    parse_bounded_json<Json>(text, limits);
  } catch (const JsonRefusal& refusal) {
    return refusal;
  }
  return std::nullopt;
}

// Returns "[value,value,...]".
std::string list(int n, const std::string& value) {
  std::string text = "[";
  for (int i = 0; i < n; ++i) text += (i > 0 ? "," : "") + value;
  return text + "]";
}

TYPED_TEST(BoundedJson, IsWhatTheTextSays) {
  for (const char* text :
       {R"({"z":[1,-2,2.5,true,false,null,"\u00e9\n",[],{}],"a":{"y":{"x":18446744073709551615},"b":""},"":0})", "7",
        R"({"a":1,"b":{"c":1,"d":2,"c":[3]},"a":{"e":1}})", R"({"a":1,"a":2,"a":3})", R"({"":1,"":2})", "[]", "{}"}) {
    EXPECT_EQ(parse_bounded_json<TypeParam>(text, {}).dump(), TypeParam::parse(text).dump()) << text;
  }
}

TYPED_TEST(BoundedJson, LimitsHoldToTheLast) {
  struct Case {
    Reason reason;
    JsonLimits limits;
    const char *most, *more;
  };
  for (const Case& one :
       {Case{Reason::kLevels, {.levels = 2}, R"([{"a":1}])", R"([{"a":[1]}])"},
        Case{Reason::kLevels, {.levels = 0}, "1", "[1]"},
        Case{Reason::kNamesOfObject, {.names_of_object = 2}, R"([{"a":1,"b":2},{"c":3}])", R"({"a":1,"b":2,"a":3})"},
        Case{Reason::kNames, {.names = 2}, R"([{"a":[1,2,3,{}]},{"b":2}])", R"([{"a":1},{"b":{"c":1}}])"},
        Case{Reason::kScalars, {.scalars = 2}, R"({"a":[1,null],"b":[]})", R"({"a":[1,null],"b":""})"},
        Case{Reason::kParts, {.parts = 3}, R"({"a":[1,2]})", R"({"a":[1,[]]})"}}) {
    EXPECT_FALSE(refusal_of<TypeParam>(one.most, one.limits)) << one.most;
    const std::optional<JsonRefusal> refusal = refusal_of<TypeParam>(one.more, one.limits);
    ASSERT_TRUE(refusal) << one.more;
    EXPECT_EQ(refusal->reason, one.reason) << one.more;
  }
}

TYPED_TEST(BoundedJson, RefusalsSayWhere) {
  EXPECT_EQ(refusal_of<TypeParam>(R"({"a":{"b":1},"c":[{"d":{}}]})", {.levels = 2})->field, "c");
  EXPECT_EQ(refusal_of<TypeParam>(R"({"a":1,"b":2})", {.names = 1})->field, "");
  for (const char* text : {"", "{", "[1,]", "{\"a\":}", "nul", "\"\xff\"", "1 2"}) {
    EXPECT_EQ(refusal_of<TypeParam>(text)->reason, Reason::kSyntax) << text;
  }
  EXPECT_EQ(refusal_of<TypeParam>("[1,]")->byte, 4);
  EXPECT_EQ(refusal_of<TypeParam>("1e999")->reason, Reason::kNumber);
}

// The square of these numbers takes minutes.
TYPED_TEST(BoundedJson, NoShapeTakesLong) {
  const std::clock_t begin = std::clock();
  EXPECT_EQ(parse_bounded_json<TypeParam>(list(300'000, "{}"), {}).size(), 300'000);
  std::string names = "{\"a\":1";
  for (int i = 0; i < 100'000; ++i) names += ",\"b" + std::to_string(i) + "\":1";
  EXPECT_EQ(parse_bounded_json<TypeParam>(names + "}", {}).size(), 100'001);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20);
}

TEST(JsonFile, ListsOfObjectsTakeTheirSize) {
  const std::clock_t begin = std::clock();
  EXPECT_EQ(parse_flat_json(list(300'000, "{\"a\":0}"))->size(), 300'000);
  EXPECT_LT(static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC, 20);
  EXPECT_TRUE(parse_flat_json(std::string(16, '[') + "1" + std::string(16, ']')));
  EXPECT_FALSE(parse_flat_json(std::string(17, '[') + "1" + std::string(17, ']')));
}

}  // namespace
}  // namespace winnow
