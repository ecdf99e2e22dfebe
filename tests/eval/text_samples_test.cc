// NIAH, NeedleBench, and passages for fidelity and perplexity.
#include <algorithm>
#include <map>
#include <regex>
#include <set>

#include "base/utf8.h"
#include "eval/texts.h"
#include "sample_test_support.h"

namespace winnow::eval {
namespace {

TEST(Niah, TheNeedleIsWhereTheDepthSays) {
  SampleOptions options = with_words();
  const std::vector<Sample> samples = find_benchmark("niah").samples(options);
  ASSERT_EQ(samples.size(), 20U);
  double last = -1;
  for (const Sample& sample : samples) {
    const std::string& needle = sample.turns[0].references.at(0);
    const std::size_t at = sample.context.find(needle);
    ASSERT_NE(at, std::string::npos);
    EXPECT_EQ(sample.context.find(needle, at + 1), std::string::npos);
    const double length = sample.coordinates.at("length");
    const double depth = sample.coordinates.at("depth");
    const double n_before = options.count_tokens(sample.context.substr(0, at));
    if (depth == 0) last = -1;
    EXPECT_GE(n_before, last);
    last = n_before;
    // The needle moves back to the end of a sentence, by less than 120 tokens.
    const double n_context = length - 200 - options.count_tokens(needle);
    EXPECT_LE(n_before, n_context * depth / 100 + 16);
    EXPECT_GE(n_before, n_context * depth / 100 - 120);
    if (depth > 0 && depth < 100 && n_before > 20) {
      EXPECT_EQ(sample.context[at - 1], '.');
    }
    EXPECT_NEAR(options.count_tokens(sample.context), length - 200, 20);
    EXPECT_FALSE(sample.chat_template);
    EXPECT_TRUE(sample.stop_at_newline);
    EXPECT_TRUE(sample.context.starts_with("This is a very long story book: <book> "));
    EXPECT_EQ(sample.turns[0].question,
              " Based on the content of the book, Question: The best thing to do in San Francisco is: \n");
    EXPECT_EQ(sample.turns[0].answer_prefix, "Answer:");
  }
}

TEST(Niah, MoreSamplesThanDepthsTakeOtherPassages) {
  SampleOptions options = with_words();
  options.lengths = {500};
  options.depths = {50};
  options.limit = 3;
  const auto samples = find_benchmark("niah").samples(options);
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_NE(samples[0].context, samples[1].context);
  EXPECT_NE(samples[1].context, samples[2].context);
  options.limit = 1;
  options.depths = {0, 50, 100};
  const auto one = find_benchmark("niah").samples(options);
  ASSERT_EQ(one.size(), 1U);
  EXPECT_EQ(one[0].coordinates.at("depth"), 50);
}

TEST(Niah, WhatCannotBeMadeSaysWhy) {
  SampleOptions options = with_words();
  const auto call = [&] { find_benchmark("niah").samples(options); };
  options.lengths = {200};
  message_of(ErrorCode::kInvalidArgument, call);
  options.lengths = {1000};
  options.depths = {101};
  message_of(ErrorCode::kInvalidArgument, call);
  options.depths = {};
  options.haystack = "/no/such/file.txt";
  message_of(ErrorCode::kNotFound, call);
  const test::TemporaryDirectory folder;
  options.haystack = folder.path();
  message_of(ErrorCode::kNotFound, call);
  options.haystack = folder.write("blank.txt", "\n \n");
  message_of(ErrorCode::kBadFile, call);
  options.haystack =
      folder.write("lines.jsonl", "{\"text\": \"One two three.\"}\n");  // repeated until the text is long enough
  EXPECT_EQ(find_benchmark("niah").samples(options).size(), 10U);
}

TEST(NeedleBench, EnglishTasksByDefault) {
  SampleOptions options = with_words();
  options.lengths = {1500};
  const auto samples = find_benchmark("needlebench").samples(options);
  std::map<std::string, int> counts;
  for (const Sample& sample : samples) {
    ++counts[sample.task];
    for (const std::string& reference : sample.turns[0].references) EXPECT_TRUE(holds(sample.context, reference));
    EXPECT_LE(options.count_tokens(whole_prompt(sample)), 1500);
    // No field is left unfilled; the braces of \boxed{} are no field.
    EXPECT_FALSE(std::regex_search(whole_prompt(sample), std::regex("\\{[a-z_]+\\}"))) << sample.task;
  }
  EXPECT_EQ(counts.size(), 6U);
  for (const auto& [task, count] : counts) EXPECT_EQ(count, 11) << task;
}

TEST(NeedleBench, SeveralNeedlesAreInOrderOfTheirDepths) {
  SampleOptions options = with_words();
  options.tasks = {"multi_en", "multi_zh"};
  options.limit = 1;
  const auto samples = find_benchmark("needlebench").samples(options);
  ASSERT_EQ(samples.size(), 2U);
  for (const Sample& sample : samples) {
    std::size_t last = 0;
    ASSERT_EQ(sample.turns[0].references.size(), 11U);
    for (const std::string& keyword : sample.turns[0].references) {
      const std::size_t at = sample.context.find(keyword);
      EXPECT_GT(at, last);
      last = at;
    }
  }
  const std::string& english = samples[0].turns[0].question;
  EXPECT_TRUE(holds(english, "?、What is "));
  EXPECT_TRUE(holds(english, "?Please answer in the format of 'The "));
  EXPECT_TRUE(holds(english, " is ______、The "));
  EXPECT_TRUE(english.ends_with("______'\n"));
  EXPECT_TRUE(samples[1].turns[0].question.ends_with("______'的格式回答。\n"));
}

TEST(NeedleBench, SeveralNeedlesTakeTheirDepthsInAnyOrder) {
  SampleOptions options = with_words();
  options.tasks = {"multi_en"};
  options.limit = 1;
  options.depths = {0, 50};
  const auto ascending = find_benchmark("needlebench").samples(options);
  options.depths = {50, 0};
  const auto descending = find_benchmark("needlebench").samples(options);
  EXPECT_EQ(whole_prompt(descending.at(0)), whole_prompt(ascending.at(0)));
}

TEST(NeedleBench, NamesOfAnotherFormAreRefused) {
  const test::TemporaryDirectory folder;
  SampleOptions options = with_words();
  options.tasks = {"atc_eldest_en"};
  options.data = folder.path();
  folder.write("needles.jsonl", nlohmann::json{{"language", "English"},
                                               {"arg2", "tea"},
                                               {"needle", "He drinks tea."},
                                               {"retrieval_question", "What does he drink?"}}
                                    .dump());
  for (const char* names : {R"({"English": ["Ann Lee", "Bo Orr"]})", "[]"}) {
    folder.write("names.json", names);
    const std::string why = message_of(ErrorCode::kBadFile, [&] { find_benchmark("needlebench").samples(options); });
    EXPECT_TRUE(holds(why, "a text of names joined by commas")) << why;
  }
}

TEST(NeedleBench, ChainsLeadToTheEldest) {
  SampleOptions options = with_words();
  options.tasks = {"atc_eldest_en", "atc_ancestor_en", "atc_descendant_en", "atc_distance_en", "reasoning_3_en"};
  options.limit = 4;
  // The forms of facts that name a parent and a child.
  const std::vector<std::regex> forms = {std::regex(R"(^(\w+ \w+) is (\w+ \w+)'s ([a-z ]+)\.$)"),
                                         std::regex(R"(^(\w+ \w+), as (\w+ \w+)'s ([a-z ]+), has.*$)"),
                                         std::regex(R"(^(\w+ \w+) is not only (\w+ \w+)'s ([a-z ]+) but also.*$)")};
  for (const Sample& sample : find_benchmark("needlebench").samples(options)) {
    const std::string& answer = sample.turns[0].references.at(0);
    if (!sample.task.starts_with("atc")) {
      EXPECT_TRUE(holds(sample.turns[0].question, "who is the eldest relative that '"));
      EXPECT_FALSE(holds(sample.turns[0].question, "that '" + answer + "'"));
      continue;
    }
    const auto facts = static_cast<int>(sample.coordinates.at("facts"));
    if (sample.task == "atc_distance_en") {
      EXPECT_GE(std::stoi(answer), facts);
      EXPECT_LE(std::stoi(answer), 2 * facts);
    } else {
      EXPECT_FALSE(holds(sample.turns[0].question, "'" + answer + "'"));
      EXPECT_TRUE(holds(sample.context, answer));
    }
    for (const std::regex& form : forms) {
      // No fact names a parent of the eldest or a child of the youngest.
      for (std::sregex_iterator i(sample.context.begin(), sample.context.end(), form), end; i != end; ++i) {
        const std::string other = (*i)[sample.task == "atc_eldest_en" ? 2 : 1].str();
        if (sample.task == "atc_eldest_en" || sample.task == "atc_descendant_en") {
          EXPECT_NE(other, answer);
        }
      }
    }
  }
}

TEST(Passages, DoNotOverlapAndGoOn) {
  for (const char* name : {"fidelity", "perplexity"}) {
    SampleOptions options = with_words();
    options.lengths = {1000};
    const std::vector<Book> all = books(options);
    const auto samples = find_benchmark(name).samples(options);
    ASSERT_EQ(samples.size(), 12U);
    std::map<std::string, std::vector<std::pair<std::size_t, std::size_t>>> spans;
    for (const Sample& sample : samples) {
      const auto book = std::find_if(all.begin(), all.end(), [&](const Book& b) { return b.name == sample.cluster; });
      ASSERT_NE(book, all.end());
      const std::string& next = sample.turns[0].references.at(0);
      const std::size_t at = book->text.find(sample.context + next);  // the true continuation
      ASSERT_NE(at, std::string::npos);
      spans[sample.cluster].emplace_back(at, at + sample.context.size() + next.size());
      EXPECT_NEAR(options.count_tokens(sample.context), 1000, 8);
      EXPECT_NEAR(options.count_tokens(next), sample.turns[0].max_new, 8);
      EXPECT_TRUE(sample.turns[0].metric.empty());
    }
    EXPECT_EQ(spans.size(), 3U);
    for (auto& [book, list] : spans) {
      EXPECT_EQ(list.size(), 4U);
      std::sort(list.begin(), list.end());
      for (std::size_t i = 1; i < list.size(); ++i) EXPECT_GE(list[i].first + 100, list[i - 1].second) << book;
    }
  }
  SampleOptions options = with_words();
  options.lengths = {1000000};
  EXPECT_TRUE(holds(message_of(ErrorCode::kInvalidArgument, [&] { find_benchmark("fidelity").samples(options); }),
                    "--haystack"));
}

// Chinese has no white space between its words, where English passages begin and end.
TEST(Passages, TextsWithoutSpacesHavePassages) {
  std::string line;
  for (int i = 0; i < 4000; ++i) line += utf8_of(static_cast<char32_t>(0x4E00 + i * 7 % 2000));
  const test::TemporaryDirectory folder;
  SampleOptions options;
  options.split_tokens = [](std::string_view text) {  // two bytes each, so characters of three bytes are split
    std::vector<std::string> tokens;
    for (std::size_t i = 0; i < text.size(); i += 2) tokens.emplace_back(text.substr(i, 2));
    return tokens;
  };
  options.haystack = folder.write("line.txt", line);
  options.lengths = {300};
  options.limit = 8;
  const auto samples = find_benchmark("fidelity").samples(options);
  ASSERT_EQ(samples.size(), 8U);
  std::set<std::string> ids;
  for (const Sample& sample : samples) {
    ids.insert(sample.id);
    EXPECT_NEAR(static_cast<double>(sample.context.size()) / 2, 300, 16);
    const std::string& next = sample.turns[0].references.at(0);
    EXPECT_NEAR(static_cast<double>(next.size()) / 2, 64, 2);
    EXPECT_TRUE(holds(line, sample.context + next));
  }
  EXPECT_EQ(ids.size(), 8U);
}

TEST(Texts, SentencesEndWhereTheyDo) {
  EXPECT_EQ(sentences_of("Mr. Holmes said: \"Go!\" He went.  J. Watson, M.D. stayed? Yes"),
            (std::vector<std::string>{"Mr. Holmes said: \"Go!\"", "He went.", "J. Watson, M.D. stayed?", "Yes"}));
  EXPECT_EQ(sentences_of("It is 3.5 percent."), (std::vector<std::string>{"It is 3.5 percent."}));
  EXPECT_TRUE(sentences_of("").empty());
}

// Most files of Project Gutenberg begin with a byte order mark and end their lines with CR LF.
TEST(Texts, NovelsFromOtherSystemsGiveTheSameSamples) {
  std::string novel, from_windows = "\xEF\xBB\xBF";
  for (int i = 0; i < 400; ++i) {
    const std::string line = "Line " + std::to_string(i) + " of a tale of the caf\xC3\xA9, and so on it goes.";
    novel += line + (i % 9 == 8 ? "\n\n" : "\n");
    from_windows += line + (i % 9 == 8 ? "\r\n\r\n" : "\r\n");
  }
  const test::TemporaryDirectory folder;
  SampleOptions options = with_words();
  options.lengths = {300};
  options.limit = 3;
  for (const char* name : {"fidelity", "niah"}) {
    options.haystack = folder.write("plain/tale.txt", novel);
    const std::vector<Sample> plain = find_benchmark(name).samples(options);
    options.haystack = folder.write("windows/tale.txt", from_windows);
    const std::vector<Sample> samples = find_benchmark(name).samples(options);
    ASSERT_EQ(samples.size(), plain.size());
    for (std::size_t i = 0; i < samples.size(); ++i) {
      EXPECT_EQ(samples[i].context, plain[i].context);
      EXPECT_EQ(samples[i].turns[0].references, plain[i].turns[0].references);
    }
  }
  options.haystack = folder.write("tale.jsonl", nlohmann::json{{"text", from_windows.substr(3)}}.dump());
  EXPECT_EQ(books(options).at(0).text, novel);
  EXPECT_EQ(distinct_lines("one\r\ntwo\r\none"), (std::vector<std::string>{"one", "two"}));
}

TEST(Texts, AFileThatIsNotUtf8IsNamed) {
  const test::TemporaryDirectory folder;
  SampleOptions options = with_words();
  folder.write("novels/a.txt", "All is well.");
  const std::string latin1 = folder.write("novels/b.txt", "The caf\xE9.");
  options.haystack = folder.path() + "/novels";
  EXPECT_TRUE(
      holds(message_of(ErrorCode::kBadFile, [&] { books(options); }), "'" + latin1 + "' is not UTF-8 at byte 7"));
  options.haystack = folder.write("c.jsonl", "{\"text\": \"well\"}\n{\"text\": \"caf\xE9\"}\n");
  EXPECT_TRUE(holds(message_of(ErrorCode::kBadFile, [&] { books(options); }),
                    "c.jsonl', line 2: it is not UTF-8 at byte 13 of the line"));
}

TEST(Texts, CutsDoNotSplitCharacters) {
  SampleOptions options;
  options.split_tokens = [](std::string_view text) {
    std::vector<std::string> bytes;
    for (const char c : text) bytes.emplace_back(1, c);
    return bytes;
  };
  const TokenText text(options, "a北b");
  EXPECT_EQ(text.text(0, 2), "a");
  EXPECT_EQ(text.text(0, 4), "a北");
  EXPECT_EQ(text.text(2, 5), "b");
  EXPECT_EQ(TokenText(options, "ab", 5).text(0, 5), "ababa");
}

}  // namespace
}  // namespace winnow::eval
