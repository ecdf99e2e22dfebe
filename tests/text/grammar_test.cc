// Grammars: the allowed tokens compared with libllama's own sampler, and grammars that are too expensive to follow.
#include <gtest/gtest.h>
#include <llama-cpp.h>

#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "base/utf8.h"
#include "expect_error.h"
#include "model/tiny_model.h"
#include "sanitizers.h"
#include "text/grammar_matcher.h"
#include "winnow/error.h"
#include "winnow/sampling.h"

namespace winnow::test {
namespace {

constexpr int kVocab = 300;

class GrammarTest : public testing::Test {
 protected:
  GrammarMatcher matcher(const std::string& text) const {
    return {std::make_shared<const Grammar>(parse_grammar(text, tokenizer_.vocab())), tokenizer_};
  }
  // Returns the token with this text.
  Token token_of(const std::string& text) const {
    for (Token token = 0; token < tokenizer_.n_vocab(); ++token) {
      if (tokenizer_.token_text(token, true) == text) return token;
    }
    ADD_FAILURE() << "no token has the text '" << text << "'";
    return 0;
  }
  // Returns whether a grammar accepts a text byte by byte to its end.
  bool matches(const std::string& grammar, const std::string& text) const {
    GrammarMatcher matcher = this->matcher(grammar);
    for (const char byte : text) {
      const Token token = byte_token(byte);
      if (!matcher.allows(token)) return false;
      matcher.accept(token);
    }
    return matcher.allows(end());
  }
  Token byte_token(char byte) const { return token_of(std::string(1, byte)); }
  Token end() const { return tokenizer_.pieces().ends.at(0); }

  const TinyModel file_;
  const Tokenizer tokenizer_{file_.path()};
  std::mt19937 random_{1};
};

// A generator of grammars of a few letters.
class RandomGrammar {
 public:
  explicit RandomGrammar(std::mt19937& random) : random_(random) {}

  std::string text() {
    std::string text = "root ::= " + alternates(2) + "\n";
    for (const char* name : {"x", "y"}) text += std::string(name) + " ::= " + literal() + " " + alternates(1) + "\n";
    return text;
  }

 private:
  int draw(int n) { return std::uniform_int_distribution<int>(0, n - 1)(random_); }
  std::string literal() {
    const char* const literals[] = {"\"a\"", "\"b\"",  "\"the\"",      "\" hat\"",
                                    "[a-e]", "[^a-e]", "\"\xC3\xA9\"", "[\xC3\xA9-\xE2\x82\xAC]",
                                    "\" \"", "\"th\"", "[ab]",         "\"\\n\""};
    return literals[draw(12)];
  }
  std::string item(int depth) {
    const int kind = draw(depth > 0 ? 6 : 4);
    if (kind < 3) return literal();
    if (kind == 3) return draw(2) == 0 ? "x" : "y";
    return "(" + alternates(depth - 1) + ")";
  }
  std::string alternates(int depth) {
    std::string text;
    for (int i = 1 + draw(3); i > 0; --i) {
      for (int k = 1 + draw(3); k > 0; --k) {
        const char* const repeats[] = {"", "", "", "?", "*", "+", "{2}", "{1,3}"};
        text += item(depth) + repeats[draw(8)] + " ";
      }
      if (i > 1) text += "| ";
    }
    return text;
  }
  std::mt19937& random_;
};

// libllama's sampler for the same vocabulary.
class Oracle {
 public:
  Oracle(const llama_vocab* vocab, const std::string& grammar)
      : sampler_(llama_sampler_init_grammar(vocab, grammar.c_str(), "root")) {}
  bool is_there() const { return sampler_ != nullptr; }
  std::vector<bool> allowed(int n_vocab) {
    std::vector<llama_token_data> all;
    for (Token token = 0; token < n_vocab; ++token) all.push_back({token, 0.0F, 0.0F});
    llama_token_data_array array{all.data(), all.size(), -1, false};
    llama_sampler_apply(sampler_.get(), &array);
    std::vector<bool> result(all.size());
    for (const llama_token_data& one : all) result[static_cast<std::size_t>(one.id)] = one.logit == 0.0F;
    return result;
  }
  void accept(Token token) { llama_sampler_accept(sampler_.get(), token); }

 private:
  llama_sampler_ptr sampler_;
};

TEST_F(GrammarTest, AllowsWhatLibllamaAllows) {
  int n_compared = 0, n_grammars = 0, n_ambiguous = 0;
  constexpr int kRounds = kHasSanitizers ? 60 : 400;
  for (int round = 0; round < kRounds; ++round) {
    const std::string text = RandomGrammar(random_).text();
    SCOPED_TRACE(text);
    std::optional<GrammarMatcher> ours;
    try {
      ours.emplace(matcher(text));
    } catch (const Error&) {
      continue;  // left-recursive
    }
    Oracle theirs(tokenizer_.vocab(), text);
    if (!theirs.is_there()) continue;
    ++n_grammars;
    std::string so_far;
    for (int step = 0; step < 12; ++step) {
      std::vector<bool> allowed;
      try {
        allowed = ours->allowed();
      } catch (const Error&) {
        ++n_ambiguous;
        break;
      }
      const std::vector<bool> expected = theirs.allowed(tokenizer_.n_vocab());
      for (Token token = 0; token < tokenizer_.n_vocab(); ++token) {
        const auto i = static_cast<std::size_t>(token);
        // With parts of characters libllama allows some that cannot become a character and refuses some that can.
        if (find_invalid_utf8(tokenizer_.token_text(token, true))) continue;
        ASSERT_EQ(allowed[i], expected[i]) << "token " << token << ", step " << step << " after '" << so_far << "'";
      }
      std::vector<Token> choices;
      for (Token token = 0; token < tokenizer_.n_vocab(); ++token) {
        EXPECT_EQ(ours->allows(token), allowed[static_cast<std::size_t>(token)]);
        const bool is_part = find_invalid_utf8(tokenizer_.token_text(token, true)).has_value();
        const bool is_end = tokenizer_.is_end_of_generation(token);
        if (allowed[static_cast<std::size_t>(token)] && !is_end && !is_part) choices.push_back(token);
      }
      ++n_compared;
      if (choices.empty()) break;
      const Token token = choices[std::uniform_int_distribution<std::size_t>(0, choices.size() - 1)(random_)];
      so_far += tokenizer_.token_text(token, true);
      ours->accept(token);
      theirs.accept(token);
    }
  }
  EXPECT_LT(n_ambiguous, 10);
  EXPECT_GT(n_grammars, kRounds / 2);
  EXPECT_GT(n_compared, 2 * kRounds);
}

TEST_F(GrammarTest, CharactersMayComeInParts) {
  const std::string e = "\xC3\xA9", euro = "\xE2\x82\xAC", smile = "\xF0\x9F\x98\x80";
  for (const std::string& one : {e, euro, smile}) {
    for (const std::string& grammar :
         {"root ::= \"" + one + "\"", "root ::= [" + one + "x]", std::string("root ::= .")}) {
      EXPECT_TRUE(matches(grammar, one)) << grammar;
      EXPECT_FALSE(matches(grammar, one.substr(0, 1))) << grammar;
      EXPECT_FALSE(matches(grammar, one + one)) << grammar;
    }
    EXPECT_FALSE(matches("root ::= [^" + one + "]", one));
    EXPECT_TRUE(matches("root ::= [^z]", one));
  }
  // This is another character with the same first byte.
  EXPECT_TRUE(matches("root ::= [^" + e + "]", "\xC3\xA8"));
  EXPECT_TRUE(matches("root ::= \"\\u20AC\" [\\U0001F600]", euro + smile));
  // Overlong forms, halves of surrogate pairs, code points beyond the last character, bytes that begin no character.
  for (const char* bad : {"\xC0\x80", "\xC1\xBF", "\xE0\x80\x80", "\xED\xA0\x80", "\xF0\x80\x80\x80",
                          "\xF4\x90\x80\x80", "\xF5\x80\x80\x80", "\x80", "\xFF"}) {
    EXPECT_FALSE(matches("root ::= .*", bad));
  }
}

TEST_F(GrammarTest, ClassesAndRepetitions) {
  EXPECT_TRUE(matches("root ::= [c-ea-b]+", "abcde"));
  EXPECT_FALSE(matches("root ::= [c-ea-b]+", "f"));
  EXPECT_FALSE(matches("root ::= [e-c]", "d"));
  EXPECT_TRUE(matches("root ::= [a-]", "-"));
  EXPECT_TRUE(matches("root ::= [^a-c\\n]", "d"));
  EXPECT_FALSE(matches("root ::= [^a-c\\n]", "\n"));
  EXPECT_TRUE(matches("root ::= [\\x41-\\x43]", "B"));
  EXPECT_TRUE(matches("root ::= \"\\\"\\\\\\t\"", "\"\\\t"));
  for (int n = 0; n < 6; ++n) {
    const std::string text(static_cast<std::size_t>(n), 'a');
    EXPECT_EQ(matches("root ::= \"a\"{2,4}", text), n >= 2 && n <= 4) << n;
    EXPECT_EQ(matches("root ::= \"a\"{3}", text), n == 3) << n;
    EXPECT_EQ(matches("root ::= \"a\"{2,}", text), n >= 2) << n;
    EXPECT_EQ(matches("root ::= (\"a\"?)*", text), true) << n;  // repeats the empty text
    EXPECT_EQ(matches("root ::= (\"a\"{2})?", text), n == 0 || n == 2) << n;
    EXPECT_EQ(matches("root ::= \"a\"{2}{2}", text), n == 4) << n;
  }
  EXPECT_TRUE(matches("root ::= x x\nx ::= \"a\"\nx ::= \"b\"", "bb"));  // the last definition counts
  EXPECT_TRUE(matches("root ::= \"(\" root? \")\"", "((()))"));
  EXPECT_FALSE(matches("root ::= \"(\" root? \")\"", "((())"));
}

// Repetition counts of any size need no additional rules.
TEST_F(GrammarTest, RepetitionsAreCounted) {
  for (int n = 0; n < 14; ++n) {
    const std::string text(static_cast<std::size_t>(n), 'a');
    EXPECT_EQ(matches("root ::= (\"a\"{2,3}){2,4}", text), n >= 4 && n <= 12) << n;
    EXPECT_EQ(matches("root ::= (\"a\" | \"aa\"){3,4}", text), n >= 3 && n <= 8) << n;
    EXPECT_EQ(matches("root ::= (\"a\"?){3,5}", text), n <= 5) << n;
    EXPECT_EQ(matches("root ::= (\"a\" | \"\"){7,} \"a\"", text), n >= 1) << n;
    EXPECT_EQ(matches("root ::= (\"aaa\"){2,} \"a\"{0,1}", text), n >= 6 && n % 3 < 2) << n;
    EXPECT_EQ(matches("root ::= x{0,2} x{3}\nx ::= \"a\"", text), n >= 3 && n <= 5) << n;
    EXPECT_EQ(matches("root ::= \"a\"{0} \"a\"{1} \"a\"{0,0}", text), n == 1) << n;
  }
  const std::string long_text = "root ::= \"b\"{3000,524288} \"c\"";
  EXPECT_TRUE(matches(long_text, std::string(3000, 'b') + "c"));
  EXPECT_FALSE(matches(long_text, std::string(2999, 'b') + "c"));
  EXPECT_FALSE(matches("root ::= \"b\"{0,2500}", std::string(2501, 'b')));
  const auto parsed = parse_grammar(long_text + "\nx ::= [a-z]{1,255} ([0-9] [a-z]{7,1000000000}){4000}", nullptr);
  EXPECT_LT(parsed.rules.size(), 10U);
  test::expect_error(ErrorCode::kInvalidArgument, "larger than 1000000000",
                     [&] { matcher("root ::= \"a\"{1000000001}"); });
  for (const char* recursive : {"root ::= root{2,3}", "root ::= \"a\"{0,3} root \"b\"",
                                "root ::= x{2,} root \"b\"\nx ::= \"a\"?", "root ::= (\"a\" | root){2}"}) {
    test::expect_error(ErrorCode::kInvalidArgument, "left-recursive", [&] { matcher(recursive); });
  }
}

TEST_F(GrammarTest, TokensMayBeNamed) {
  const Token the = token_of("the");
  GrammarMatcher one = matcher("root ::= <[" + std::to_string(the) + "]> \"a\"");
  for (Token token = 0; token < tokenizer_.n_vocab(); ++token) EXPECT_EQ(one.allows(token), token == the) << token;
  EXPECT_EQ(one.allowed()[static_cast<std::size_t>(the)], true);
  test::expect_error(ErrorCode::kInvalidArgument, "does not follow the grammar",
                     [&] { matcher("root ::= <[" + std::to_string(the) + "]> \"a\"").accept(end()); });
  one.accept(the);
  EXPECT_FALSE(one.allows(the));
  EXPECT_TRUE(one.allows(byte_token('a')));
  GrammarMatcher other = matcher("root ::= !<[" + std::to_string(the) + "]>");
  const std::vector<bool> allowed = other.allowed();
  for (Token token = 0; token < tokenizer_.n_vocab(); ++token) {
    EXPECT_EQ(other.allows(token), allowed[static_cast<std::size_t>(token)]) << token;
    EXPECT_EQ(allowed[static_cast<std::size_t>(token)], token != the && token != end()) << token;
  }
}

// The end token's name, "</s>" or the like, does not count as text for the grammar.
TEST_F(GrammarTest, AnEndIsNoText) {
  const std::string name = tokenizer_.token_text(end(), true);
  ASSERT_FALSE(name.empty());
  GrammarMatcher one = matcher("root ::= .{" + std::to_string(name.size()) + "}");
  EXPECT_FALSE(one.allows(end()));
  EXPECT_FALSE(one.allowed()[static_cast<std::size_t>(end())]);
  test::expect_error(ErrorCode::kInvalidArgument, "does not follow the grammar", [&] { one.accept(end()); });
}

// Each of these kept libllama's sampler busy for minutes or hours at one token.
TEST_F(GrammarTest, ManyWaysAreFollowedOrRefusedInTime) {
  std::string doubling = "root ::= a0\n";
  for (int i = 0; i < 60; ++i) {
    const std::string next = "a" + std::to_string(i + 1);
    doubling += "a" + std::to_string(i) + " ::= " + next + " | " + next + "\n";
  }
  doubling += "a60 ::= \"a\" root?\n";
  const std::vector<std::pair<std::string, bool>> grammars = {
      {"root ::= (\"a\"?){900} (\"a\"){900}", true},
      {"root ::= (((\"a\"?){12}){12}){12}", true},
      {"root ::= (\"a\"?){1000000000}", true},
      {"root ::= (((\"a\"?){1000000000}){1000000000}){5,1000000000}", false},
      {"root ::= (((\"a\" | \"aa\"){1,9}){1,1000000000}){5,1000000000} \"b\"", false},
      {"root ::= (\"a\" | \"aa\"){1000000,1000000000}", true},
      {"root ::= ((((\"a\"*)*)*)*)*", true},
      {"root ::= (\"a\"? \"a\"? \"a\"?)* \"a\"", true},
      {doubling, true},
      {"root ::= \"a\" root \"b\" | \"a\" root \"c\"", false},
      {"root ::= \"a\" root root | \"a\" root \"b\" | \"a\" root", false}};
  const Token a = byte_token('a');
  for (const auto& [text, ends_well] : grammars) {
    SCOPED_TRACE(text.substr(0, 60));
    GrammarMatcher one = matcher(text);
    bool is_refused = false;
    try {
      for (int i = 0; i < 100; ++i) {
        EXPECT_TRUE(one.allowed()[static_cast<std::size_t>(a)]);
        one.accept(a);
      }
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << error.what();
      is_refused = true;
    }
    EXPECT_EQ(is_refused, !ends_well);
  }
}

TEST_F(GrammarTest, ManyValuesAreNoTrouble) {
  std::string text = "root ::= ";
  for (int i = 0; i < 10'000; ++i) text += (i > 0 ? " | \"" : "\"") + std::to_string(1'000'000 + 7 * i) + "\"";
  GrammarMatcher one = matcher(text);
  const std::string chosen = "1034993";  // 7 * 4999
  for (const char digit : chosen) {
    EXPECT_TRUE(one.allowed()[static_cast<std::size_t>(byte_token(digit))]);
    one.accept(byte_token(digit));
  }
  EXPECT_TRUE(one.allows(end()));
  EXPECT_FALSE(one.allows(byte_token('0')));
}

TEST_F(GrammarTest, LongGrammarsAreReadInTime) {
  const auto expect_refused = [&](const std::string& text, const std::string& part) {
    test::expect_error(ErrorCode::kInvalidArgument, part, [&] { matcher(text); });
  };
  expect_refused("root ::= \"" + std::string(std::size_t{4} << 20, 'a') + "\"", "more than the 4194304 allowed");
  expect_refused("root ::= " + std::string(100'000, '('), "nested deeper than 200");
  std::string many = "root ::= \"a\"\n";
  for (int i = 0; i < 110'000; ++i) many += "r" + std::to_string(i) + " ::= \"a\"\n";
  expect_refused(many, "more than 100000 rules");
  // Rules refer to each other nine thousand deep, and the last one may be empty.
  std::string deep = "root ::= r0 \"!\"\n";
  for (int i = 0; i < 9'000; ++i) deep += "r" + std::to_string(i) + " ::= r" + std::to_string(i + 1) + "\n";
  EXPECT_TRUE(matches(deep + "r9000 ::= \"a\" |\n", "a!"));
  EXPECT_TRUE(matches(deep + "r9000 ::= \"a\" |\n", "!"));
  expect_refused(deep + "r9000 ::= \"a\" | r0 \"b\"\n", "left-recursive");
}

TEST_F(GrammarTest, CallersMayHaveLowerLimits) {
  const auto parsed = [&](const std::string& text, const GrammarLimits& limits) {
    return std::make_shared<const Grammar>(parse_grammar(text, tokenizer_.vocab(), limits));
  };
  const std::string many = "root ::= (\"abc\"?){50} | (\"ab\"?){50} | (\"a\"?){50}";
  const auto grammar = parsed(many, {});
  EXPECT_EQ(parsed(many, {.n_rules = 200, .n_symbols = 1'000})->rules.size(), grammar->rules.size());
  test::expect_error(ErrorCode::kInvalidArgument, "more than 2 rules", [&] { parsed(many, {.n_rules = 2}); });
  test::expect_error(ErrorCode::kInvalidArgument, "more than 20 symbols", [&] { parsed(many, {.n_symbols = 20}); });
  EXPECT_TRUE(GrammarMatcher(grammar, tokenizer_, 1'000).allows(byte_token('a')));
  test::expect_error(ErrorCode::kInvalidArgument, "too many ways", [&] { GrammarMatcher(grammar, tokenizer_, 10); });
}

// A query for all tokens takes no more steps per token with a large vocabulary. Texts of several bounded lengths, as in
// the alternatives of a schema, were once refused there.
TEST(GrammarOfALargeVocabulary, BoundedTextsCanBeFollowed) {
  const TinyModel file({.n_layer = 1, .n_vocab = 20'000});
  const Tokenizer tokenizer(file.path());
  std::string grammar = "root ::= \"\\\"\" (";
  for (int n = 10; n < 30; ++n)
    grammar += (n > 10 ? " | " : "") + ("[^\"]{0," + std::to_string(n) + "} [a-f" + std::to_string(n % 10) + "]");
  grammar += ") \"\\\"\"";
  GrammarMatcher matcher(std::make_shared<const Grammar>(parse_grammar(grammar, tokenizer.vocab())), tokenizer);
  ASSERT_TRUE(matcher.accept_text("\"a\xc3"));
  for (const char* more : {"\xa9", "bc", "w12345678901234567890"}) {
    ASSERT_TRUE(matcher.accept_text(more));
    const std::vector<bool> allowed = matcher.allowed();
    for (Token token = 0; token < tokenizer.n_vocab(); token += 7) {
      EXPECT_EQ(allowed[static_cast<std::size_t>(token)], matcher.allows(token)) << token;
    }
  }
}

}  // namespace
}  // namespace winnow::test
