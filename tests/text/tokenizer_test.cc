// Text to tokens and back with the tokenizer of a tiny model.
#include "text/tokenizer.h"

#include <gguf.h>
#include <gtest/gtest.h>

#include <iterator>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "expect_error.h"
#include "model/byte_pair_model.h"
#include "model/tiny_architectures.h"
#include "model/tiny_model.h"
#include "sampling/longest_token.h"
#include "text/piece_memo.h"
#include "text/special_tokens.h"
#include "winnow/error.h"
#include "winnow/model.h"

namespace winnow::test {
namespace {

class TokenizerTest : public testing::Test {
 protected:
  const TinyModel file_;
  const std::shared_ptr<const Model> model_ = Model::load(file_.path());
};

TEST_F(TokenizerTest, TextComesBack) {
  for (const std::string& text :
       {std::string("the hat on a tent"), std::string("Hello, w\u00f6rld! \u65e5\u672c\u8a9e \U0001F389\n\n  x"),
        std::string(""), std::string(" "), std::string("a\0b", 3), std::string("\xef\xbf\xbf")}) {
    const std::vector<Token> tokens = model_->tokenize(text, false, false);
    EXPECT_EQ(model_->detokenize(tokens), text);
    std::string joined;
    for (const Token token : tokens) joined += model_->token_text(token);
    EXPECT_EQ(joined, text);
  }
}

// Searching the text in one piece for special tokens takes libllama minutes. It is not cut where white space stands
// before one of them.
TEST_F(TokenizerTest, ManySpecialTokensAreFoundInTime) {
  for (const auto& [part, n_tokens] : {std::pair("</s>", 400'001U), {" </s>", 800'001U}}) {
    std::string text;
    for (int i = 0; i < 400'000; ++i) text += part;
    const std::vector<Token> tokens = model_->tokenize(text, true, true);
    ASSERT_EQ(tokens.size(), n_tokens);
    EXPECT_EQ(tokens.front(), 1);
    EXPECT_EQ(tokens.back(), 2);
  }
}

// The tokens of the pieces together are those of the whole text.
TEST_F(TokenizerTest, LongTextsAreCutWhereItMakesNoDifference) {
  const Tokenizer tokenizer(file_.path()), in_fragments(file_.path(), 0);
  std::vector<std::string> all = {"<unk>", "<s>", "</s>"};
  const std::vector<std::string> certain = certain_specials(all, all);
  EXPECT_EQ(certain, all);
  std::mt19937 random(1);
  std::size_t n_pieces = 0;
  for (int round = 0; round < 300; ++round) {
    std::string text;
    for (int i = 0; i < 60; ++i) {
      const char* const parts[] = {"<s>", "</s>", "<unk>", " ", "the", "a", "\n", "<", "s>", "\xC3\xA9", "  ", "then"};
      text += parts[random() % 12];
    }
    const std::vector<Token> whole = tokenizer.tokenize(text, false, true);
    std::vector<std::size_t> cuts = cuts_at_specials(text, certain, 1 + random() % 40);
    n_pieces += cuts.size();
    std::vector<Token> joined;
    for (std::size_t i = 0; i < cuts.size(); ++i) {
      const std::size_t n_bytes = (i + 1 < cuts.size() ? cuts[i + 1] : text.size()) - cuts[i];
      const std::vector<Token> more = tokenizer.tokenize(std::string_view(text).substr(cuts[i], n_bytes), false, true);
      joined.insert(joined.end(), more.begin(), more.end());
    }
    EXPECT_EQ(joined, whole) << text;
    EXPECT_EQ(in_fragments.tokenize(text, false, true), whole) << text;
    EXPECT_EQ(in_fragments.tokenize(text, true, false), tokenizer.tokenize(text, true, false)) << text;
  }
  EXPECT_GT(n_pieces, 600U);
}

// The beginning of a chat has the same tokens at every turn as at the first, and as with a new tokenizer.
TEST_F(TokenizerTest, LongBeginningsComeAgain) {
  const Tokenizer tokenizer(file_.path());
  std::mt19937 random(1);
  for (int round = 0; round < 4; ++round) {
    std::string begin = "<s>";
    while (begin.size() < 9000) begin += random() % 5 == 0 ? "the " : "a\n";
    for (const char* tail : {"</s>", "</s>then", "</s>then</s> a", "then"}) {
      for (const bool parses : {true, false}) {
        const std::string text = begin + tail;
        EXPECT_EQ(tokenizer.tokenize(text, true, parses), Tokenizer(file_.path()).tokenize(text, true, parses)) << tail;
      }
    }
  }
}

TEST(PieceMemoTest, KeepsWhatWasAskedForLastWithinItsBytes) {
  PieceMemo memo(4096);
  const auto text = [](char letter) { return std::string(1000, letter); };
  for (const char letter : {'a', 'b', 'c'}) {
    memo.add(text(letter), true, {letter});
    EXPECT_TRUE(memo.find(text('a'), true).has_value()) << letter;
  }
  EXPECT_EQ(memo.find(text('b'), true), (std::vector<Token>{'b'}));
  EXPECT_EQ(memo.find(text('b'), false), std::nullopt);
  EXPECT_EQ(memo.find(text('b').substr(1), true), std::nullopt);
  memo.add(text('d'), false, {1, 2});
  EXPECT_EQ(memo.find(text('c'), true), std::nullopt);  // least recently used
  EXPECT_EQ(memo.find(text('d'), false), (std::vector<Token>{1, 2}));
  EXPECT_TRUE(memo.find(text('a'), true).has_value());
  memo.add(std::string(5000, 'e'), true, {});
  EXPECT_EQ(memo.find(std::string(5000, 'e'), true), std::nullopt);
  EXPECT_LE(memo.bytes(), 4096U);
  EXPECT_GT(memo.bytes(), 3000U);
}

TEST(SpecialTokens, OnlyThoseAreCertainThatNothingDisturbs) {
  using Texts = std::vector<std::string>;
  const auto certain = [](const Texts& all) { return certain_specials(all, all); };
  EXPECT_EQ(certain({"<a>", "<ab>"}), (Texts{"<a>", "<ab>"}));
  EXPECT_EQ(certain({"aba"}), Texts{});                // overlaps itself
  EXPECT_EQ(certain({"<a>", "b<a>"}), Texts{"b<a>"});  // occurs inside another
  EXPECT_EQ(certain({"<a>", "<a>b"}), (Texts{"<a>", "<a>b"}));
  EXPECT_EQ(certain({"<a>", ">x<"}), Texts{});  // may begin within it
  EXPECT_EQ(certain({" <a>", "", "\n"}), Texts{});
  EXPECT_EQ(certain_specials({"<a>", "<b>"}, {"<b>"}), Texts{"<b>"});
  const std::string text = "xx<a><a> <a>yy<a>";
  EXPECT_EQ(cuts_at_specials(text, {"<a>"}, 1), (std::vector<std::size_t>{0, 2, 5, 14}));
  EXPECT_EQ(cuts_at_specials(text, {"<a>"}, 6), (std::vector<std::size_t>{0, 14}));
  EXPECT_EQ(cuts_at_specials(text, {}, 1), (std::vector<std::size_t>{0}));
}

TEST_F(TokenizerTest, SpecialTokens) {
  const std::vector<Token> with = model_->tokenize("the", true, false);
  const std::vector<Token> without = model_->tokenize("the", false, false);
  ASSERT_EQ(with.size(), without.size() + 1);
  EXPECT_EQ(with.front(), 1);
  EXPECT_EQ(model_->token_text(1), "");
  EXPECT_EQ(model_->token_text(1, true), "<s>");
  EXPECT_EQ(model_->tokenize("</s>", false, true), std::vector<Token>{2});
  EXPECT_GT(model_->tokenize("</s>", false, false).size(), 1U);
  EXPECT_TRUE(model_->is_end_of_generation(2));
  EXPECT_FALSE(model_->is_end_of_generation(5));
  EXPECT_FALSE(model_->is_end_of_generation(-1));
  EXPECT_FALSE(model_->is_end_of_generation(1 << 30));
}

TEST_F(TokenizerTest, NoTokenHoldsMoreThanTheLongest) {
  const std::size_t longest = longest_token_bytes(*model_);
  EXPECT_GE(longest, 4u);
  for (Token token = 0; token < model_->info().n_vocab; ++token) {
    EXPECT_LE(model_->token_text(token, true).size(), longest);
  }
  for (const std::string& text :
       {std::string(1000, ' '), std::string(1000, 'a'), std::string("<|end|><|end|><|end|>")}) {
    EXPECT_GE(model_->tokenize(text, false, true).size() * longest, text.size());
  }
}

TEST_F(TokenizerTest, InvalidUtf8NamesTheByte) {
  const std::vector<std::pair<std::string, int>> cases = {
      {"ok\xff", 2}, {"abc\xe2\x82", 3},      {"\xc0\x80", 0},        {"\xed\xa0\x80", 0},
      {"x\x80", 1},  {"\xf4\x90\x80\x80", 0}, {"\u65e5\u672c\xe8", 6}};
  for (const auto& [text, byte] : cases) {
    std::string message;
    EXPECT_EQ(code_of([&] { model_->tokenize(text, true, true); }, &message), ErrorCode::kInvalidArgument);
    EXPECT_NE(message.find("byte " + std::to_string(byte)), std::string::npos) << message;
  }
}

TEST_F(TokenizerTest, TokensOutsideTheVocabulary) {
  for (const Token token : {-1, 300, 1 << 30}) {
    EXPECT_EQ(code_of([&] { model_->token_text(token); }), ErrorCode::kInvalidArgument);
    EXPECT_EQ(code_of([&] { model_->detokenize(std::span(&token, 1)); }), ErrorCode::kInvalidArgument);
  }
}

TEST_F(TokenizerTest, ThreadsMayShareIt) {
  const std::string text = "then the hen hath an ant 12345";
  const std::vector<Token> expected = model_->tokenize(text, true, true);
  std::vector<int> n_wrong(4, 0);
  std::vector<std::thread> threads;
  for (int& wrong : n_wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += model_->tokenize(text, true, true) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, std::vector<int>(4, 0));
}

// A tokenizer as llama.cpp writes those of Gemma 4: byte pairs of characters, and bytes for those that are no token.
// `kind_of_words`: a pre-tokenizer that the file names, which libllama passes over.
TinyModelOptions gemma4_options(const char* kind_of_words) {
  TinyModelOptions options = tiny_options("gemma4");
  options.edit_metadata = [=](gguf_context* file) {
    const char* merges[] = {"t h", "th e", "\u2581 the", "a n", "h e"};
    gguf_set_val_str(file, "tokenizer.ggml.model", "gemma4");
    gguf_set_arr_str(file, "tokenizer.ggml.merges", merges, std::size(merges));
    if (*kind_of_words != 0) gguf_set_val_str(file, "tokenizer.ggml.pre", kind_of_words);
  };
  return options;
}

TEST(Gemma4TokenizerTest, TextComesBack) {
  const TinyModel file(gemma4_options("gemma4"));
  const auto model = Model::load(file.path());
  constexpr Token kFirstByte = 3;
  EXPECT_EQ(model->token_text(kFirstByte + '\n'), "\n");
  EXPECT_EQ(model->token_text(kFirstByte + 0xE6), "\xE6");
  EXPECT_EQ(model->tokenize("\u00e9", false, false), (std::vector<Token>{kFirstByte + 0xC3, kFirstByte + 0xA9}));
  for (const std::string text :
       {"the hat on a tent", "Hello, w\u00f6rld! \u65e5\u672c\u8a9e \U0001F389\n\n  x", "", " ", "\n"}) {
    const std::vector<Token> tokens = model->tokenize(text, false, false);
    EXPECT_EQ(model->detokenize(tokens), text);
    std::string joined;
    for (const Token token : tokens) joined += model->token_text(token);
    EXPECT_EQ(joined, text);
  }
  EXPECT_EQ(model->tokenize("the the", false, false).size(), 2U);
}

// libllama splits these texts at ends of lines with a loop of its own, whatever pre-tokenizer the file names.
TEST(Gemma4TokenizerTest, LongTextsHaveTheTokensOfLibllama) {
  std::string text;
  for (int i = 0; text.size() < 2 * Tokenizer::kMostBytesOfWords; ++i) {
    text += i % 3 == 0 ? "the hat " : i % 7 == 0 ? "\u65e5\u672c\n" : "then, an 12";
  }
  for (const char* kind_of_words : {"", "gemma4", "default", "tekken"}) {
    const TinyModel file(gemma4_options(kind_of_words));
    const Tokenizer tokenizer(file.path());
    EXPECT_EQ(tokenizer.tokenize(text, false, false), whole_tokens(tokenizer, text)) << kind_of_words;
  }
}

TEST(TokenizerFileTest, NoTokenizerStillLoads) {
  const TinyModel file({.has_tokenizer = false});
  const auto model = Model::load(file.path());
  EXPECT_EQ(code_of([&] { model->tokenize("the", true, true); }), ErrorCode::kUnsupported);
  EXPECT_EQ(code_of([&] { model->token_text(5); }), ErrorCode::kUnsupported);
  EXPECT_FALSE(model->is_end_of_generation(2));
}

TEST(TokenizerFileTest, DamagedTokenizers) {
  const TinyModel unknown(
      {.edit_metadata = [](gguf_context* file) { gguf_set_val_str(file, "tokenizer.ggml.model", "abacus"); }});
  EXPECT_EQ(code_of([&] { Model::load(unknown.path()); }), ErrorCode::kBadFile);
  const TinyModel repeated({.edit_metadata = [](gguf_context* file) {
    const char* texts[] = {"<unk>", "a", "a"};
    gguf_set_arr_str(file, "tokenizer.ggml.tokens", texts, 3);
  }});
  EXPECT_EQ(code_of([&] { Model::load(repeated.path()); }), ErrorCode::kBadFile);
  // libllama would abort on byte tokens of these kinds.
  for (const char* kind : {"bert", "gpt2"}) {
    const TinyModel other({.edit_metadata = [=](gguf_context* file) {
      gguf_set_val_str(file, "tokenizer.ggml.model", kind);
      const char* merges[] = {"t h"};
      gguf_set_arr_str(file, "tokenizer.ggml.merges", merges, 1);
    }});
    EXPECT_EQ(code_of([&] { Model::load(other.path()); }), ErrorCode::kBadFile) << kind;
  }
  // libllama would make room for them: 170 GB.
  const TinyModel huge({.has_tokenizer = false, .edit_metadata = [](gguf_context* file) {
                          gguf_set_val_u32(file, "llama.vocab_size", 4'000'000'000U);
                        }});
  EXPECT_EQ(code_of([&] { Model::load(huge.path()); }), ErrorCode::kBadFile);
}

}  // namespace
}  // namespace winnow::test
