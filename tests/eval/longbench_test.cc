#include <set>

#include "sample_test_support.h"

namespace winnow::eval {
namespace {

std::string replaced(std::string text, const std::string& field, const std::string& value) {
  const std::size_t at = text.find(field);
  return at == std::string::npos ? text : text.replace(at, field.size(), value);
}

TEST(LongBench, PromptsAreTheTemplatesFilled) {
  if (shared_data().empty()) GTEST_SKIP() << "../shared is not here";
  const nlohmann::json templates = shared_templates();
  for (const bool by_length : {false, true}) {
    SampleOptions options;
    options.data = shared_data() + (by_length ? "/longbench_e" : "/longbench");
    std::vector<std::string> skipped;
    options.on_skipped = [&](const std::string& why) { skipped.push_back(why); };
    const std::vector<Sample> samples = find_benchmark(by_length ? "longbench-e" : "longbench").samples(options);
    EXPECT_EQ(samples.size(), by_length ? 48U : 149U);
    EXPECT_EQ(skipped.size(), by_length ? 1U : 3U);  // tasks whose files are not there
    std::set<std::string> ids;
    for (const Sample& sample : samples) {
      std::ifstream file(options.data + "/" + sample.task + (by_length ? "_e.jsonl" : ".jsonl"));
      nlohmann::json line;
      for (std::string text; std::getline(file, text) && (line.is_null() || line["_id"] != sample.id);) {
        line = nlohmann::json::parse(text);
      }
      const nlohmann::json& row = templates["longbench"][sample.task];
      // {input} comes after {context} in every template. Filled in first, it cannot be found inside the context.
      std::string prompt = replaced(row["template"], "{input}", line["input"]);
      prompt = replaced(prompt, "{context}", line["context"]);
      EXPECT_EQ(whole_prompt(sample), prompt) << sample.task;
      EXPECT_EQ(sample.turns[0].max_new, row["max_new_tokens"]) << sample.task;
      EXPECT_EQ(nlohmann::json(sample.turns[0].references), line["answers"]);
      EXPECT_EQ(sample.group, by_length ? "0-4k" : "");
      EXPECT_TRUE(ids.insert(sample.task + sample.id).second);
      const bool few_shot = sample.task == "trec" || sample.task == "triviaqa" || sample.task == "samsum";
      EXPECT_EQ(sample.first_line_only, few_shot);
      EXPECT_EQ(sample.chat_template, !few_shot && sample.task != "lcc" && sample.task != "repobench-p");
      EXPECT_EQ(sample.turns[0].classes.empty(), sample.task != "trec");
    }
  }
}

constexpr const char* kGood =
    R"({"input": "q {context}", "context": "c {input} \u0041", "answers": ["a"], "length": 4000, "_id": "1"})"
    "\n";

TEST(LongBench, FieldsAreFilledInOnePass) {
  const test::TemporaryDirectory folder;
  folder.write("data/hotpotqa_e.jsonl", std::string(kGood) + "\n" + kGood);
  SampleOptions options;
  options.data = folder.path();
  const std::vector<Sample> samples = find_benchmark("longbench-e").samples(options);
  ASSERT_EQ(samples.size(), 2U);
  EXPECT_TRUE(holds(samples[0].context, "\nc {input} A\n"));
  EXPECT_EQ(samples[0].turns[0].question, "Question: q {context}\n");
  EXPECT_EQ(samples[0].group, "4-8k");
  EXPECT_EQ(samples[1].id, "1#2");  // repeated in the file
  EXPECT_EQ(samples[0].cluster, samples[1].cluster);
}

TEST(LongBench, ABadLineIsNamedOrSkipped) {
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"{\"input\": ", "not JSON"},
      {"[1]", "not a JSON object"},
      {R"({"input": "", "answers": ["a"], "length": 1})", "\"context\" is missing"},
      {R"({"input": "", "context": 5, "answers": ["a"], "length": 1})", "\"context\" is not a string"},
      {R"({"input": "", "context": "", "answers": [], "length": 1})", "\"answers\" is empty"},
      {R"({"input": "", "context": "", "answers": [null], "length": 1})", "\"answers\" is not a list"},
      {R"({"input": "", "context": "", "answers": ["a"], "length": "x"})", "\"length\" is not a number"},
      {"{\"input\": \"\xff\"}", "not UTF-8 at byte 11 of the line"}};
  for (const auto& [line, why] : bad) {
    const test::TemporaryDirectory folder;
    const std::string path = folder.write("qasper.jsonl", kGood + line + "\n" + kGood);
    SampleOptions options;
    options.data = path;
    const std::string message = message_of(ErrorCode::kBadFile, [&] { find_benchmark("longbench").samples(options); });
    EXPECT_TRUE(holds(message, "qasper.jsonl', line 2: ")) << message;
    EXPECT_TRUE(holds(message, why)) << message;
    std::vector<std::string> skipped;
    options.skip_bad = true;
    options.on_skipped = [&](const std::string& text) { skipped.push_back(text); };
    EXPECT_EQ(find_benchmark("longbench").samples(options).size(), 2U);
    ASSERT_EQ(skipped.size(), 1U);
    EXPECT_TRUE(holds(skipped[0], "line 2"));
    options.limit = 1;  // lines after the limit are not read
    EXPECT_EQ(find_benchmark("longbench").samples(options).size(), 1U);
    EXPECT_EQ(skipped.size(), 1U);
  }
}

TEST(LongBench, WhatIsMissingIsNamed) {
  const test::TemporaryDirectory folder;
  SampleOptions options;
  const auto call = [&] { find_benchmark("longbench").samples(options); };
  EXPECT_TRUE(holds(message_of(ErrorCode::kNotFound, call), "THUDM/LongBench"));
  options.data = folder.path();
  EXPECT_TRUE(holds(message_of(ErrorCode::kNotFound, call), "narrativeqa.jsonl"));
  folder.write("trec.jsonl", "");
  options.tasks = {"qasper"};
  EXPECT_TRUE(holds(message_of(ErrorCode::kNotFound, call), "there is no qasper.jsonl"));
  options.tasks = {"qaspr"};
  EXPECT_TRUE(holds(message_of(ErrorCode::kNotFound, call), "did you mean 'qasper'"));
  options.data = folder.path() + "/none";
  options.tasks = {};
  EXPECT_TRUE(holds(message_of(ErrorCode::kNotFound, call), "check --data"));
  EXPECT_TRUE(holds(message_of(ErrorCode::kNotFound, [] { find_benchmark("longbensh"); }), "did you mean 'longbench'"));
}

TEST(Benchmarks, HaveDistinctNamesAndTasks) {
  std::set<std::string_view> names;
  for (const Benchmark* benchmark : benchmarks()) {
    EXPECT_TRUE(names.insert(benchmark->name()).second);
    EXPECT_EQ(&find_benchmark(benchmark->name()), benchmark);
    EXPECT_FALSE(benchmark->summary().empty());
    const std::vector<std::string> tasks = benchmark->tasks();
    EXPECT_EQ(std::set<std::string>(tasks.begin(), tasks.end()).size(), tasks.size());
    EXPECT_FALSE(tasks.empty());
  }
  EXPECT_EQ(names.size(), 9U);
  EXPECT_EQ(find_benchmark("longbench").tasks().size(), 21U);
  EXPECT_EQ(find_benchmark("longbench-e").tasks().size(), 13U);
  EXPECT_EQ(find_benchmark("ruler").tasks().size(), 13U);
}

}  // namespace
}  // namespace winnow::eval
