// Request bodies: the order of names, the limits, and that the largest ones are read quickly.
#include "server/body_json.h"

#include <gtest/gtest.h>

#include <ctime>
#include <functional>
#include <string>

namespace winnow::server {
namespace {

std::string object(int n_names, const std::string& prefix = "k") {
  std::string text = "{";
  for (int i = 0; i < n_names; ++i) text += (i > 0 ? ",\"" : "\"") + prefix + std::to_string(i) + "\":0";
  return text + "}";
}

std::string list(std::size_t n, const std::string& value) {
  std::string text = "[";
  for (std::size_t i = 0; i < n; ++i) text += (i > 0 ? "," : "") + value;
  return text + "]";
}

// Returns the field that the error names, or "-" if there is no error.
std::string refusal(const std::string& text) {
  try {
    parse_body(text);
  } catch (const ApiError& error) {
    EXPECT_EQ(error.status, 400);
    const std::string sentence = error.what();
    EXPECT_EQ(sentence.starts_with(error.param.empty() ? "the body " : "'" + error.param + "' "), true) << sentence;
    return error.param;
  }
  return "-";
}

// Returns the processor time of `work`, whatever else runs at the same time.
double seconds(const std::function<void()>& work) {
  const std::clock_t begin = std::clock();
  work();
  return static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
}

TEST(BodyJson, IsWhatTheTextSays) {
  const std::string text =
      R"({"z":[1,-2,2.5,true,false,null,"\u00e9\n",[],{}],"a":{"y":{"x":18446744073709551615},"b":""},"":0})";
  EXPECT_EQ(parse_body(text), Json::parse(text));
  EXPECT_EQ(to_text(parse_body(text)),
            R"({"z":[1,-2,2.5,true,false,null,"é\n",[],{}],"a":{"y":{"x":18446744073709551615},"b":""},"":0})");
  EXPECT_EQ(parse_json("7"), Json(7));
}

TEST(BodyJson, OfANameThatComesAgainTheLastValueCounts) {
  for (const char* text :
       {R"({"a":1,"b":{"c":1,"d":2,"c":[3]},"a":{"e":1}})", R"({"a":1,"a":2,"a":3})", R"({"":1,"":2})"}) {
    EXPECT_EQ(to_text(parse_body(text)), Json::parse(text).dump()) << text;
  }
}

TEST(BodyJson, Refusals) {
  for (const char* text :
       {"", "[]", "7", "{", "nul", R"({"a":1}x)", "{\"a\":\"\xFF\"}", R"({"a":1e999})", R"({"a" 1})"}) {
    EXPECT_EQ(refusal(text), "") << text;
  }
  const auto nested = [](int n) {
    return R"({"a":)" + std::string(static_cast<std::size_t>(n), '[') + "0" +
           std::string(static_cast<std::size_t>(n), ']') + "}";
  };
  EXPECT_EQ(refusal(nested(63)), "-");
  EXPECT_EQ(refusal(nested(64)), "");
  EXPECT_EQ(refusal(nested(1'000'000)), "");
}

TEST(BodyJson, NamesAreCounted) {
  EXPECT_EQ(refusal(object(4096)), "-");
  EXPECT_EQ(refusal(object(4097)), "");
  EXPECT_EQ(refusal(R"({"a":0,"b":[{"c":)" + object(4096) + "}]}"), "-");
  EXPECT_EQ(refusal(R"({"a":0,"b":[{"c":)" + object(4097) + R"(}],"d":0})"), "b");
  // Repeated names count as well, because reading each takes time.
  std::string again = R"({"b":{"c":0)";
  for (int i = 0; i < 5000; ++i) again += R"(,"c":0)";
  EXPECT_EQ(refusal(again + "}}"), "b");
  EXPECT_EQ(refusal(R"({"a":)" + list(499'000, "[]") + "}"), "-");
  EXPECT_EQ(refusal(R"({"a":)" + list(501'000, "[]") + "}"), "a");
  EXPECT_EQ(refusal(R"({"a":)" + list(240'000, R"({"":0})") + "}"), "-");
  EXPECT_EQ(refusal(R"({"a":)" + list(260'000, R"({"":0})") + "}"), "a");
  EXPECT_EQ(refusal(R"({"a":)" + list(600'000, "0") + "}"), "-");
}

// The bodies are as large as --max-body allows, in various shapes.
TEST(BodyJson, TheLargestAreReadInAMoment) {
  constexpr std::size_t kMostBytes = std::size_t{16} << 20;
  const std::string half = object(4096, "a name of more than a few letters, which has a place of its own ");
  const std::string whole = object(4096);
  for (const std::string& body :
       {object(100'000), R"({"messages":[{"content":)" + object(100'000) + "}]}",
        R"({"a":)" + list(kMostBytes / half.size(), half) + "}", R"({"a":)" + list(120, whole) + "}",
        R"({"a":)" + list(kMostBytes / whole.size(), whole) + "}", R"({"a":)" + list(kMostBytes / 7, "123456") + "}",
        R"({"a":)" + list(kMostBytes / 3, "[]") + "}", R"({"a":)" + list(kMostBytes / 3, "{}") + "}"}) {
    EXPECT_LE(body.size(), kMostBytes + 16);
    const double s = seconds([&] { refusal(body); });
    EXPECT_LT(s, 5) << body.substr(0, 40);
    RecordProperty("seconds", std::to_string(s));
  }
}

TEST(BodyJson, Size) {
  const JsonSize size = size_of(Json::parse(R"({"a":[1,{"b":2}],"c":{}})"));
  EXPECT_EQ(size.n_names, 3U);
  EXPECT_EQ(size.n_values, 6U);
}

}  // namespace
}  // namespace winnow::server
