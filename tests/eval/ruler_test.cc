#include <algorithm>
#include <map>
#include <regex>
#include <set>
#include <sstream>

#include "sample_test_support.h"

namespace winnow::eval {
namespace {

std::vector<Sample> generated(const std::string& task, SampleOptions options, std::int32_t length = 1024) {
  options.tasks = {task};
  options.lengths = {length};
  if (options.limit == 0) options.limit = 3;
  return find_benchmark("ruler").samples(options);
}

std::vector<std::string> text_lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

std::string masked(const std::string& text) {
  static const std::regex uuid("[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}");
  return std::regex_replace(text, uuid, "UUID");
}

const std::vector<std::string> kGenerated = {"niah_single_1",
                                             "niah_single_2",
                                             "niah_single_3",
                                             "niah_multikey_1",
                                             "niah_multikey_2",
                                             "niah_multikey_3",
                                             "niah_multivalue",
                                             "niah_multiquery",
                                             "vt",
                                             "cwe",
                                             "fwe"};

TEST(Ruler, GeneratedNeedlesHaveTheOfficialSamplesStructure) {
  if (shared_data().empty()) GTEST_SKIP() << "../shared is not here";
  SampleOptions options;
  options.data = shared_data() + "/ruler";
  options.tasks = {"niah_multikey_3"};
  const std::vector<Sample> official = find_benchmark("ruler").samples(options);
  ASSERT_EQ(official.size(), 30U);
  const Sample made = generated("niah_multikey_3", with_words(), 4096)[0];
  const std::vector<std::string> made_lines = text_lines(masked(made.context));
  for (const Sample& sample : official) {
    const std::vector<std::string> lines = text_lines(masked(sample.context));
    ASSERT_GT(lines.size(), 10U);
    EXPECT_EQ(lines[0], made_lines[0]);
    // All other lines are needles, which are alike.
    EXPECT_EQ(std::set<std::string>(lines.begin() + 1, lines.end()),
              std::set<std::string>(made_lines.begin() + 1, made_lines.end()));
    EXPECT_EQ(masked(sample.turns[0].question), masked(made.turns[0].question));
    EXPECT_EQ(masked(sample.turns[0].answer_prefix), masked(made.turns[0].answer_prefix));
    EXPECT_EQ(sample.context.back(), made.context.back());
    EXPECT_EQ(sample.turns[0].max_new, made.turns[0].max_new);
    EXPECT_EQ(sample.coordinates.at("length"), 4096);
    EXPECT_TRUE(holds(sample.context, sample.turns[0].references.at(0)));
  }
  EXPECT_TRUE(holds(official[0].turns[0].question, "455ac762-7428-4656-b3ee-4d3b5a104129"));
}

TEST(Ruler, PromptsFitTheLengthAndAreNearlyAsLong) {
  for (const std::string& task : kGenerated) {
    for (const std::int32_t length : {1024, 4096}) {
      SampleOptions options = with_words();
      options.reserved_tokens = 20;
      for (const Sample& sample : generated(task, options, length)) {
        const std::int32_t n =
            options.count_tokens(whole_prompt(sample)) + sample.turns[0].max_new + options.reserved_tokens;
        EXPECT_LE(n, length) << task << " " << sample.id;
        EXPECT_GE(n, length / 3) << task << " " << sample.id;  // an essay is shortened by 500 words at a time
        EXPECT_EQ(sample.coordinates.at("length"), length);
        EXPECT_TRUE(sample.prefix_behind_header);
      }
    }
  }
}

// Prompts of one size differ by a few tokens, and the official step of 500 words is more than a short prompt has.
TEST(Ruler, ShortSamplesThatComeOutLongerAreMadeSmaller) {
  SampleOptions options = with_words();
  options.count_tokens = [](std::string_view text) { return static_cast<std::int32_t>(text.size() / 4); };
  options.limit = 20;
  for (const std::int32_t length : {640, 768, 896}) {
    const std::vector<Sample> samples = generated("niah_multikey_1", options, length);
    ASSERT_EQ(samples.size(), 20U);
    for (const Sample& sample : samples) {
      const std::int32_t n = options.count_tokens(whole_prompt(sample)) + sample.turns[0].max_new;
      EXPECT_LE(n, length) << sample.id;
      EXPECT_GE(n, length / 3) << sample.id;
    }
  }
}

// Every prompt begins and ends with the official template, filled with these fields.
TEST(Ruler, TemplatesAreOfficial) {
  if (shared_data().empty()) GTEST_SKIP() << "../shared is not here";
  const nlohmann::json templates = shared_templates()["ruler"];
  const std::map<std::string, std::string> rows = {{"niah_multivalue", "niah"},
                                                   {"vt", "variable_tracking"},
                                                   {"cwe", "common_words_extraction"},
                                                   {"fwe", "freq_words_extraction"}};
  for (const auto& [task, row] : rows) {
    const Sample sample = generated(task, with_words())[0];
    std::string whole =
        templates[row]["template"].get<std::string>() + templates[row]["answer_prefix"].get<std::string>();
    EXPECT_EQ(sample.turns[0].max_new, templates[row]["tokens_to_generate"]);
    std::smatch match;
    const std::string question = sample.turns[0].question + sample.turns[0].answer_prefix;
    std::regex_search(question, match, std::regex(task == "vt" ? "the value ([0-9]+)" : " for ([a-z]+-[a-z]+) "));
    const std::vector<std::pair<std::string, std::string>> fields = {
        {"{type_needle_v}", "numbers"}, {"{query}", match.empty() ? "" : match[1].str()}, {"{num_v}", "5"}};
    for (const auto& [field, value] : fields) {
      for (std::size_t at = whole.find(field); at != std::string::npos; at = whole.find(field)) {
        whole.replace(at, field.size(), value);
      }
    }
    const std::size_t context = whole.find("{context}");
    EXPECT_TRUE(sample.context.starts_with(whole.substr(0, context))) << task;
    EXPECT_TRUE(whole_prompt(sample).ends_with(whole.substr(context + 9))) << task;
  }
}

TEST(Ruler, NeedlesAreInTheTextAndAskedFor) {
  for (const Sample& sample : generated("niah_multiquery", with_words())) {
    ASSERT_EQ(sample.turns[0].references.size(), 4U);
    std::smatch match;
    ASSERT_TRUE(std::regex_search(sample.turns[0].question, match,
                                  std::regex("numbers for (\\S+), (\\S+), (\\S+), and (\\S+) mentioned")));
    for (std::size_t i = 0; i < 4; ++i) {
      EXPECT_TRUE(holds(sample.context, "One of the special magic numbers for " + match[i + 1].str() +
                                            " is: " + sample.turns[0].references[i] + "."));
    }
  }
  const Sample one = generated("niah_single_1", with_words())[0];
  EXPECT_TRUE(one.context.starts_with("A special magic number is hidden within"));
  EXPECT_TRUE(one.turns[0].question.starts_with("What is the special magic number for "));
  EXPECT_TRUE(one.turns[0].answer_prefix.ends_with(" mentioned in the provided text is"));
  EXPECT_EQ(generated("niah_multivalue", with_words())[0].turns[0].references.size(), 4U);
}

TEST(Ruler, VariablesAreAChainInOrder) {
  for (const Sample& sample : generated("vt", with_words())) {
    const std::size_t second = sample.context.find("\n\nMemorize");
    ASSERT_NE(second, std::string::npos);
    std::string tail;
    for (const std::string& line : text_lines(sample.context.substr(second))) {
      if (line.starts_with("VAR ")) tail += line + "\n";
    }
    const std::vector<std::string>& names = sample.turns[0].references;
    ASSERT_EQ(names.size(), 5U);
    const std::string& question = sample.turns[0].question;
    const std::string value = question.substr(question.find("value ") + 6, 5);
    std::string expected = "VAR " + names[0] + " = " + value + "\n";
    for (std::size_t i = 1; i < 5; ++i) expected += "VAR " + names[i] + " = VAR " + names[i - 1] + " \n";
    EXPECT_EQ(tail, expected);
    // The worked example has names of three letters and their answers.
    EXPECT_TRUE(std::regex_search(sample.context.substr(0, second + 2),
                                  std::regex("they are:  [A-Z]{3} [A-Z]{3} [A-Z]{3} [A-Z]{3} [A-Z]{3}\n\n$")));
  }
}

// The chat template is around the whole prompt, so it takes nothing of the worked example.
TEST(Ruler, TheWorkedExampleIsTheSameUnderEveryChatTemplate) {
  const auto example = [](std::int32_t reserved) {
    SampleOptions options = with_words();
    options.reserved_tokens = reserved;
    const std::string context = generated("vt", options, 4096)[0].context;
    return context.substr(0, context.find("\n\nMemorize"));
  };
  EXPECT_EQ(example(100), example(0));
  EXPECT_EQ(example(400), example(0));
  SampleOptions bytes = with_words();
  bytes.count_tokens = [](std::string_view text) { return static_cast<std::int32_t>(text.size()); };
  const std::string why = message_of(ErrorCode::kInvalidArgument, [&] { generated("vt", bytes, 65536); });
  EXPECT_TRUE(holds(why, "500 tokens for vt's worked example")) << why;
}

std::map<std::string, int> word_counts(const std::string& text) {
  std::map<std::string, int> counts;
  std::istringstream words(text);
  for (std::string word; words >> word;) ++counts[word];
  return counts;
}

TEST(Ruler, CommonWordsAreThoseThatOccurMost) {
  for (const std::int32_t length : {1024, 4096}) {
    for (const Sample& sample : generated("cwe", with_words(), length)) {
      const std::size_t second = sample.context.rfind("Below is");
      const auto counts = word_counts(sample.context.substr(sample.context.find('\n', second)));
      ASSERT_EQ(sample.turns[0].references.size(), 10U);
      for (const std::string& word : sample.turns[0].references) EXPECT_EQ(counts.at(word), length < 4096 ? 6 : 30);
      int n_others = 0;
      for (const auto& [word, count] : counts) {
        const bool common = std::count(sample.turns[0].references.begin(), sample.turns[0].references.end(), word) > 0;
        if (common || word.ends_with('.')) continue;
        EXPECT_EQ(count, length < 4096 ? 1 : 3) << word;
        ++n_others;
      }
      EXPECT_GT(n_others, 5);
    }
  }
  const std::string message = message_of(ErrorCode::kInvalidArgument, [] { generated("cwe", with_words(), 65536); });
  EXPECT_TRUE(holds(message, "--words")) << message;
}

TEST(Ruler, FrequentWordsFallWithTheirRank) {
  for (const Sample& sample : generated("fwe", with_words(), 4096)) {
    const auto counts = word_counts(sample.context.substr(sample.context.rfind("coded words. ") + 13));
    const std::vector<std::string>& words = sample.turns[0].references;
    ASSERT_EQ(words.size(), 3U);
    const int first = counts.at("...");
    EXPECT_NEAR(counts.at(words[0]), first / 4.0, 1);
    EXPECT_NEAR(counts.at(words[1]), first / 9.0, 1);
    EXPECT_NEAR(counts.at(words[2]), first / 16.0, 1);
  }
}

TEST(Ruler, TheSeedDecidesAndOtherTasksDoNotMatter) {
  SampleOptions options = with_words();
  options.limit = 2;
  options.lengths = {1024};
  options.tasks = {"niah_single_2", "vt"};
  const auto both = find_benchmark("ruler").samples(options);
  options.tasks = {"vt"};
  const auto alone = find_benchmark("ruler").samples(options);
  ASSERT_EQ(both.size(), 4U);
  EXPECT_EQ(whole_prompt(both[2]), whole_prompt(alone[0]));
  EXPECT_NE(whole_prompt(alone[0]), whole_prompt(alone[1]));
  options.seed = 1;
  EXPECT_NE(whole_prompt(find_benchmark("ruler").samples(options)[0]), whole_prompt(alone[0]));
  // The answers are pinned, so that a seed gives the same sample from release to release.
  EXPECT_EQ(alone[0].turns[0].references, (std::vector<std::string>{"KBINP", "IYZVI", "BVRTO", "RJTOI", "UWDBS"}));
}

TEST(Ruler, QuestionsComeFromSquadAndHotpotFiles) {
  const test::TemporaryDirectory folder;
  folder.write("dev-v2.0.json", R"({"data": [{"paragraphs": [
      {"context": "Doc A.", "qas": [{"question": "Q1?", "answers": [{"text": "x"}, {"text": "y"}], "is_impossible": false},
                                    {"question": "Q2?", "answers": [], "is_impossible": true}]},
      {"context": "Doc B.", "qas": []}]}, {"paragraphs": [{"context": "Doc C.", "qas": []}]}]})");
  folder.write("hotpot_dev_distractor_v1.json",
               R"([{"question": "H?", "answer": "z", "context": [["T", ["one.", " two."]], ["U", ["three."]]]}])");
  SampleOptions options = with_words();
  options.data = folder.path();
  const Sample squad = generated("qa_1", options)[0];
  EXPECT_EQ(squad.turns[0].references, (std::vector<std::string>{"x", "y"}));
  EXPECT_TRUE(holds(squad.context, "\n\nThe following are given documents.\n\nDocument 1:\nDoc "));
  EXPECT_TRUE(holds(squad.context, "Document 3:\nDoc "));
  EXPECT_TRUE(holds(squad.context, ":\nDoc A."));
  EXPECT_TRUE(squad.turns[0].question.starts_with("Answer the question based on the given documents."));
  EXPECT_TRUE(squad.turns[0].question.ends_with("\n\nQuestion: Q1?"));
  EXPECT_EQ(squad.turns[0].metric, "ruler_part");
  EXPECT_TRUE(holds(generated("qa_2", options)[0].context, "T\none. two."));
  folder.write("dev-v2.0.json", R"({"date": []})");
  EXPECT_TRUE(holds(message_of(ErrorCode::kBadFile, [&] { generated("qa_1", options); }), "is not SQuAD 2.0"));
  EXPECT_TRUE(holds(message_of(ErrorCode::kNotFound, [] { generated("qa_1", with_words()); }), "dev-v2.0.json"));
}

TEST(Ruler, OfficialLinesOldAndNew) {
  const test::TemporaryDirectory folder;
  folder.write(
      "8192/vt/validation.jsonl",
      "{\"index\": 3, \"input\": \"a Question: x Answer: no\\nQuestion: Find\", \"answer_prefix\": \" Answer: they "
      "are: \", \"outputs\": [\"AB\"], \"length\": 5}\n");
  folder.write("8192/fwe.jsonl", "{\"input\": \"text\\nQuestion: What? Answer: the\", \"outputs\": [\"ab\"]}\n");
  SampleOptions options;
  options.data = folder.path();
  const std::vector<Sample> samples = find_benchmark("ruler").samples(options);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_EQ(samples[0].id, "8192-3");
  EXPECT_EQ(samples[0].context, "a Question: x Answer: no\n");
  EXPECT_EQ(samples[0].turns[0].question, "Question: Find");
  EXPECT_EQ(samples[0].turns[0].answer_prefix, " Answer: they are: ");
  EXPECT_EQ(samples[1].turns[0].answer_prefix, " Answer: the");
  folder.write("8192/fwe.jsonl", "{\"input\": \"no question\", \"outputs\": [\"ab\"]}\n");
  EXPECT_TRUE(
      holds(message_of(ErrorCode::kBadFile, [&] { find_benchmark("ruler").samples(options); }), "fwe.jsonl', line 1"));
  folder.write("8192/fwe.jsonl",
               "{\"index\": [], \"input\": \"Question: What? Answer: the\", \"outputs\": [\"ab\"]}\n");
  const std::string why = message_of(ErrorCode::kBadFile, [&] { find_benchmark("ruler").samples(options); });
  EXPECT_TRUE(holds(why, "\"index\" is an empty list")) << why;
}

TEST(Ruler, LengthsChooseAmongFoldersOfLengths) {
  const test::TemporaryDirectory folder;
  for (const char* length : {"4096", "8192"}) {
    folder.write(std::string(length) + "/fwe.jsonl",
                 "{\"input\": \"text\\nQuestion: What? Answer: the\", \"outputs\": [\"ab\"]}\n");
  }
  SampleOptions options;
  options.tasks = {"fwe"};
  options.lengths = {4096};
  const auto read = [&](const std::string& data) {
    options.data = data;
    return find_benchmark("ruler").samples(options);
  };
  ASSERT_EQ(read(folder.path()).size(), 1U);
  EXPECT_EQ(read(folder.path())[0].coordinates.at("length"), 4096);
  EXPECT_EQ(read(folder.file("4096/")).size(), 1U);
  EXPECT_EQ(read(folder.file("4096/fwe.jsonl")).size(), 1U);
  for (const char* data : {"8192", "8192/fwe.jsonl"}) {
    const std::string why = message_of(ErrorCode::kInvalidArgument, [&] { read(folder.file(data)); });
    EXPECT_TRUE(holds(why, "--lengths has no effect")) << why;
  }
}

TEST(Ruler, WhatCannotBeMadeSaysWhy) {
  EXPECT_TRUE(
      holds(message_of(ErrorCode::kInvalidArgument, [] { generated("vt", with_words(), 200); }), "does not fit"));
  EXPECT_TRUE(holds(message_of(ErrorCode::kInvalidArgument, [] { generated("vt", {}, 4096); }), "tokenizer"));
  SampleOptions options = with_words();
  options.words = "/no/such/folder";
  EXPECT_TRUE(holds(message_of(ErrorCode::kNotFound, [&] { generated("cwe", options); }), "adjectivelist.txt"));
  options = with_words();
  options.data = "/no/such/folder";
  EXPECT_TRUE(holds(message_of(ErrorCode::kNotFound, [&] { generated("vt", options); }), "check --data"));
}

}  // namespace
}  // namespace winnow::eval
