// InfiniteBench and SCBench.
#include "sample_test_support.h"

namespace winnow::eval {
namespace {

TEST(InfiniteBench, PromptsAreTheTemplatesFilled) {
  if (shared_data().empty()) GTEST_SKIP() << "../shared is not here";
  const nlohmann::json templates = shared_templates()["infinitebench"];
  for (const bool chat : {false, true}) {
    SampleOptions options;
    options.data = shared_data() + "/infinitebench";
    options.chat_prompts = chat;
    const auto samples = find_benchmark("infinitebench").samples(options);
    ASSERT_EQ(samples.size(), 4U);
    for (const Sample& sample : samples) {
      std::ifstream file(options.data + "/" + sample.task + ".jsonl");
      std::string text;
      for (int i = 0; i <= std::stoi(sample.id); ++i) std::getline(file, text);
      const nlohmann::json line = nlohmann::json::parse(text);
      std::string prompt = templates[sample.task][chat ? "chat" : "base"];
      prompt.replace(prompt.find("{input}"), 7, line["input"].get<std::string>());
      prompt.replace(prompt.find("{context}"), 9, line["context"].get<std::string>());
      EXPECT_EQ(whole_prompt(sample), prompt) << sample.task;
      EXPECT_EQ(sample.turns[0].references, line["answer"].get<std::vector<std::string>>());
      EXPECT_EQ(score_answer(sample, sample.turns[0], " " + sample.turns[0].references[0] + " "), 1) << sample.task;
    }
  }
}

std::string line_of(const nlohmann::json& value) { return value.dump() + "\n"; }

TEST(InfiniteBench, FieldsOfTheOtherTasks) {
  const test::TemporaryDirectory folder;
  folder.write("longbook_choice_eng.jsonl",
               line_of({{"context", "book"}, {"input", "Who?"}, {"answer", {"b"}}, {"options", {"a", "b", "c", "d"}}}));
  folder.write("math_find.jsonl", line_of({{"context", "[1, 2.5]"},
                                           {"input", "You should answer.\nThe largest number of the list is:"},
                                           {"answer", {2.5}}}));
  folder.write("code_run.jsonl",
               line_of({{"context", "def func_1(x): ..."}, {"input", "Compute func_1(-3)."}, {"answer", {-12}}}));
  SampleOptions options;
  options.data = folder.path();
  options.tasks = {"longbook_choice_eng", "math_find", "code_run"};
  const auto samples = find_benchmark("infinitebench").samples(options);
  ASSERT_EQ(samples.size(), 3U);
  EXPECT_EQ(samples[0].turns[0].references, (std::vector<std::string>{"b", "B"}));
  EXPECT_TRUE(holds(samples[0].turns[0].question, "Question: Who?\nA. a\nB. b\nC. c\nD. d\n"));
  EXPECT_TRUE(samples[1].context.starts_with("What is the largest number in the following list?\n\n[1, 2.5]"));
  EXPECT_EQ(samples[1].turns[0].references[0], "2.5");
  EXPECT_TRUE(samples[2].context.starts_with("There is a function called func_1 in"));
  EXPECT_EQ(samples[2].turns[0].question, "Please compute the exact value of func_1(-3). ");
  EXPECT_EQ(samples[2].turns[0].answer_prefix, "The value of func_1(-3) is");
  EXPECT_EQ(score_answer(samples[2], samples[2].turns[0], " -12"), 1);
  folder.write("longbook_choice_eng.jsonl",
               line_of({{"context", ""}, {"input", ""}, {"answer", "x"}, {"options", {"a", "b", "c", "d"}}}));
  const std::string why = message_of(ErrorCode::kBadFile, [&] { find_benchmark("infinitebench").samples(options); });
  EXPECT_TRUE(holds(why, "not among \"options\"")) << why;
  options.tasks = {"code_run"};
  folder.write("code_run.jsonl", line_of({{"id", nlohmann::json::array()},
                                          {"context", "def func_1(x): ..."},
                                          {"input", "Compute func_1(-3)."},
                                          {"answer", {-12}}}));
  const std::string no_id = message_of(ErrorCode::kBadFile, [&] { find_benchmark("infinitebench").samples(options); });
  EXPECT_TRUE(holds(no_id, "\"id\" is an empty list")) << no_id;
}

nlohmann::json turn_of(const std::string& input, const nlohmann::json& answer) {
  return {{"input", input}, {"answer", answer}};
}

TEST(ScBench, TurnsFollowTheReferenceAnswerOrStartFromTheContext) {
  const test::TemporaryDirectory folder;
  folder.write(
      "scbench_qa_eng.jsonl",
      line_of({{"id", 7}, {"context", "book"}, {"multi_turns", {turn_of("Q1?", {"A1", "B1"}), turn_of("Q2?", "A2")}}}));
  SampleOptions options;
  options.data = folder.path();
  const Sample turns = find_benchmark("scbench").samples(options).at(0);
  EXPECT_EQ(turns.id, "7");
  EXPECT_EQ(turns.context, "Read the book and answer the question. Be very concise in your answer.\n\nbook\n\n");
  ASSERT_EQ(turns.turns.size(), 2U);
  EXPECT_EQ(turns.turns[0].question, "Question: Q1?\nAnswer:");
  EXPECT_EQ(turns.turns[0].follow_up, "");
  EXPECT_EQ(turns.turns[1].follow_up, "A1\n\nQuestion: Q2?\nAnswer:");
  EXPECT_EQ(turns.turns[1].question, "Question: Q2?\nAnswer:");
  EXPECT_EQ(turns.turns[1].references, std::vector<std::string>{"A2"});
  options.multi_request = true;
  const Sample requests = find_benchmark("scbench").samples(options).at(0);
  EXPECT_EQ(requests.context, "Read the book and answer the question. Be very concise in your answer.\n\nbook");
  EXPECT_EQ(requests.turns[1].question, "Question: Q2?\nAnswer:");
  EXPECT_EQ(requests.turns[1].follow_up, "");
}

TEST(ScBench, PromptsAreTheOfficialOnes) {
  if (shared_data().empty()) GTEST_SKIP() << "../shared is not here";
  const nlohmann::json templates = shared_templates()["scbench"];
  const auto filled = [](std::string text) {
    const std::vector<std::pair<std::string, std::string>> fields = {{"{context}", "CTX"},
                                                                     {"{input}", "The sum of it is"},
                                                                     {"{question}", "The sum of it is"},
                                                                     {"{pre_ans}", "5"},
                                                                     {"{prefix}", "What is the sum of it?"},
                                                                     {"{OPTION_A}", "5"},
                                                                     {"{OPTION_B}", "6"},
                                                                     {"{OPTION_C}", "7"},
                                                                     {"{OPTION_D}", "8"}};
    for (const auto& [field, value] : fields) {
      for (std::size_t at = text.find(field); at != std::string::npos; at = text.find(field))
        text.replace(at, field.size(), value);
    }
    return text;
  };
  for (const std::string& task : find_benchmark("scbench").tasks()) {
    const test::TemporaryDirectory folder;
    nlohmann::json turn = turn_of("The sum of it is", "5");
    turn["options"] = {"5", "6", "7", "8"};
    if (task == "scbench_summary_with_needles") turn["task"] = "scbench_passkey";
    if (task == "scbench_repoqa_and_kv") turn["task"] = "scbench_kv";
    folder.write(task + ".jsonl", line_of({{"context", "CTX"}, {"multi_turns", {turn, turn}}}));
    SampleOptions options;
    options.data = folder.path();
    const nlohmann::json& row = templates[task];
    const Sample turns = find_benchmark("scbench").samples(options).at(0);
    EXPECT_EQ(whole_prompt(turns), filled(row["first_turn"])) << task;
    EXPECT_EQ(turns.turns[1].follow_up, filled(row["follow_up"])) << task;
    const nlohmann::json& most = row["max_new_tokens"];
    EXPECT_EQ(turns.turns[0].max_new, most.is_object() ? most[turn["task"].get<std::string>()] : most) << task;
    options.multi_request = true;
    const Sample requests = find_benchmark("scbench").samples(options).at(0);
    EXPECT_EQ(requests.context, filled(row["context_only"])) << task;
    EXPECT_EQ(requests.turns[1].question, filled(row["query"])) << task;
  }
}

TEST(ScBench, RepoQaComparesWithEveryFunctionOfTheRepository) {
  const test::TemporaryDirectory folder;
  std::string lines;
  for (const char* repository : {"a", "b", "a"}) {
    lines +=
        line_of({{"context", "code"},
                 {"repo", repository},
                 {"lang", "python"},
                 {"multi_turns",
                  {turn_of("find", std::string("def f_") + std::to_string(lines.size()) + "(a, b): return a + b")}}});
  }
  folder.write("scbench_repoqa.jsonl", lines);
  SampleOptions options;
  options.data = folder.path();
  options.limit = 1;  // the functions of the later lines count all the same
  const auto samples = find_benchmark("scbench").samples(options);
  ASSERT_EQ(samples.size(), 1U);
  EXPECT_EQ(samples[0].turns[0].classes.size(), 2U);
  EXPECT_EQ(score_answer(samples[0], samples[0].turns[0], samples[0].turns[0].references[0]), 1);
}

TEST(ScBench, BadTurnsAreNamed) {
  const test::TemporaryDirectory folder;
  SampleOptions options;
  options.data = folder.path();
  const std::vector<nlohmann::json> bad = {
      {{"context", "c"}},
      {{"context", "c"}, {"multi_turns", nlohmann::json::array()}},
      {{"context", "c"}, {"multi_turns", {{{"input", "i"}}}}},
      {{"multi_turns", {turn_of("i", "a")}}},
      {{"id", nlohmann::json::array()}, {"context", "c"}, {"multi_turns", {turn_of("i", "a")}}}};
  for (const nlohmann::json& value : bad) {
    folder.write("scbench_kv.jsonl", line_of(value));
    const std::string why = message_of(ErrorCode::kBadFile, [&] { find_benchmark("scbench").samples(options); });
    EXPECT_TRUE(holds(why, "scbench_kv.jsonl', line 1: ")) << why;
  }
}

}  // namespace
}  // namespace winnow::eval
