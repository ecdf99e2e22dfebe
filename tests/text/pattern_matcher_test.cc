#include "text/pattern_matcher.h"

#include <gtest/gtest.h>

#include <random>
#include <regex>
#include <string>
#include <vector>

#include "expect_error.h"
#include "schema/pattern.h"
#include "thread_seconds.h"
#include "winnow/error.h"

namespace winnow::test {
namespace {

using Matches = std::vector<PatternMatcher::Match>;

Matches matches_of(const PatternMatcher& matcher, const std::string& text) {
  const std::u32string characters(text.begin(), text.end());
  Matches matches;
  PatternMatcher::Search search(matcher, characters);
  while (const auto match = search.next()) matches.push_back(*match);
  return matches;
}

Matches matches_of_std(const std::regex& regex, const std::string& text) {
  Matches matches;
  for (auto it = std::sregex_iterator(text.begin(), text.end(), regex); it != std::sregex_iterator(); ++it) {
    const auto begin = static_cast<std::size_t>(it->position());
    matches.push_back({begin, begin + static_cast<std::size_t>(it->length())});
  }
  return matches;
}

// One search goes on where another one failed, so texts are many words long.
TEST(PatternMatcherTest, FindsWhatABacktrackingMatcherFinds) {
  std::mt19937 random(1);
  for (const char* pattern : {"a",
                              "ab|a",
                              "a|ab",
                              "a+b?",
                              "(?:ab)+",
                              "a*b",
                              "a*b|a",
                              "(?:a|ab)(?:c|bcd)*",
                              "a+(?!b)|a+",
                              "(?:(?=[ab])[^b])*b+",
                              "a{2}",
                              "a{1,3}",
                              "(?:ab){1,2}c?",
                              "a{2,}b",
                              "[^a]+$|a",
                              "b+$",
                              "(?:a+b+)+c|b",
                              "(?:a+(?: a*b)*)+c|[abc]",
                              "(?:a|b|ab)+(?=c)",
                              " ?[ab]+|\\s+(?!\\S)|\\s+",
                              "\\s*[bc]+|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s"}) {
    const PatternMatcher matcher(Pattern::parse(pattern));
    const std::regex regex(pattern);
    for (int i = 0; i < 300; ++i) {
      const std::string letters = i % 2 == 0 ? "abc" : "aab c  ";
      std::string text;
      for (std::size_t n = random() % 40; n > 0; --n) text += letters[random() % letters.size()];
      EXPECT_EQ(matches_of(matcher, text), matches_of_std(regex, text)) << pattern << " in '" << text << "'";
    }
  }
}

TEST(PatternMatcherTest, RefusesWhatItDoesNotMatchExactly) {
  for (const auto& [pattern, reason] :
       std::vector<std::pair<const char*, const char*>>{{"a*", "matches the empty text"},
                                                        {"a|", "matches the empty text"},
                                                        {"(?:a*)+b", "repeats the empty text"},
                                                        {"^a", "looks back"},
                                                        {"\\ba", "looks back"},
                                                        {"a(?=bc)", "looks ahead further"},
                                                        {"a{1,1000}", "has that many repetitions"},
                                                        {"(?:ab){1000}", "has that many repetitions"}}) {
    expect_error(ErrorCode::kUnsupported, reason, [&text = pattern] { PatternMatcher(Pattern::parse(text)); });
  }
}

// Each of these takes a backtracking matcher time that grows with the square of the text or faster.
TEST(PatternMatcherTest, TakesTimeInProportionToTheText) {
  const auto seconds = [&](const PatternMatcher& matcher, std::size_t n) {
    const double start = thread_seconds();
    EXPECT_FALSE(matches_of(matcher, std::string(n, ' ') + "a").empty());
    return thread_seconds() - start;
  };
  for (const char* pattern : {" +$|a", " *b|a", "(?: +)+b|a", " *b| {512}(?!\\S)| (?!\\S)|a"}) {
    const PatternMatcher matcher(Pattern::parse(pattern));
    const double few = seconds(matcher, 20'000);
    EXPECT_LT(seconds(matcher, 80'000), 10 * few + 0.1) << pattern;
  }
}

}  // namespace
}  // namespace winnow::test
