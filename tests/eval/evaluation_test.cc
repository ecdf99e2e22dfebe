// The benchmarks from a program: runs, refusals, and runs that are resumed.
#include "winnow/evaluation.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "eval/run/plan.h"
#include "eval/run/result_store.h"
#include "eval/sample.h"
#include "model/tiny_model.h"
#include "winnow/error.h"

namespace winnow {
namespace {

namespace fs = std::filesystem;

class EvaluationTest : public testing::Test {
 protected:
  ~EvaluationTest() override { fs::remove_all(folder_); }

  // Returns the options of a passage of 80 tokens.
  static EvaluationOptions fidelity() {
    EvaluationOptions options;
    options.benchmarks = {"fidelity"};
    options.methods = {"full", "snapkv"};
    options.budgets = {"50%"};
    options.lengths = {80};
    options.limit = 1;
    return options;
  }

  bool run(const EvaluationOptions& options, const EvaluationCallbacks& callbacks = {}) const {
    return evaluate(model_, {.n_threads = 1, .prefill_weights = PrefillWeights::kFloat}, options, folder_, callbacks);
  }

  ErrorCode failure(const EvaluationOptions& options) const {
    try {
      run(options);
    } catch (const Error& error) {
      return error.code();
    }
    ADD_FAILURE() << "no error";
    return ErrorCode::kInternal;
  }

  const test::TinyModel file_{{.n_ctx = 512}};
  const std::shared_ptr<const Model> model_ = Model::load(file_.path());
  const std::string folder_ = (fs::temp_directory_path() / ("winnow-evaluation-" + std::to_string(getpid()))).string();
};

TEST_F(EvaluationTest, AnswersOfEveryMethodAndBudget) {
  std::int64_t n_done = 0;
  EXPECT_TRUE(run(fidelity(), {.on_progress = [&](std::int64_t done, std::int64_t) { n_done = done; }}));
  EXPECT_EQ(n_done, 2);
  const std::string csv = evaluation_csv({folder_});
  EXPECT_NE(csv.find("\nfidelity,agnostic,all,,full,,f16,f16,"), std::string::npos) << csv;
  EXPECT_NE(csv.find("\nfidelity,agnostic,all,,snapkv,50%,f16,f16,"), std::string::npos) << csv;
  // A second run has no more work.
  EXPECT_TRUE(run(fidelity()));
  EXPECT_EQ(evaluation_csv({folder_}), csv);
}

// The same samples are measured in two ways: by their answers' scores, and by the divergence from the full cache's
// answers.
TEST_F(EvaluationTest, ABenchmarksAnswersByTheirDivergence) {
  const test::TemporaryDirectory data;
  std::string lines;
  for (int i = 0; i < 3; ++i) {
    lines += R"({"input": "", "context": ")" + std::string(200, static_cast<char>('a' + i)) + R"( int x = 1;", )" +
             R"("answers": ["y"], "length": 200, "_id": ")" + std::to_string(i) + "\"}\n";
  }
  data.write("lcc.jsonl", lines);
  EvaluationOptions options = fidelity();
  options.lengths.clear();
  options.benchmarks = {"longbench", "fidelity:longbench"};
  options.tasks = {"lcc"};
  options.data = {{"longbench", data.file("")}};
  options.limit = 2;
  std::int64_t n_done = 0;
  EXPECT_TRUE(run(options, {.on_progress = [&](std::int64_t done, std::int64_t) { n_done = done; }}));
  EXPECT_EQ(n_done, 8);
  const std::string csv = evaluation_csv({folder_});
  for (const char* benchmark : {"longbench", "fidelity:longbench"}) {
    EXPECT_NE(csv.find("\n" + std::string(benchmark) + ",agnostic,all,,snapkv,50%,f16,f16,"), std::string::npos) << csv;
  }
}

// Plans of one sample of a task of LongBench.
class PlanTest : public testing::Test {
 protected:
  ~PlanTest() override { eval::set_jieba(""); }

  eval::Plan plan_of(const std::string& task, const std::vector<std::string>& classes = {}) const {
    const nlohmann::json sample{{"input", "q"},  {"context", "text"}, {"answers", {"a"}},
                                {"length", 200}, {"_id", "1"},        {"all_classes", classes}};
    data_.write(task + ".jsonl", sample.dump() + "\n");
    eval::EvaluationRequest request{.benchmarks = {"longbench"}, .methods = {"full"}};
    request.samples.tasks = {task};
    request.data = {{"longbench", data_.file("")}};
    return make_plan(request, check_request(request), model_);
  }

  const test::TemporaryDirectory data_;
  const std::shared_ptr<const Model> model_ = Model::load(test::TinyModel().path());
};

TEST_F(PlanTest, ChineseWordsAreOfTheRun) {
  const eval::Plan by_characters = plan_of("dureader");
  EXPECT_EQ(by_characters.configuration.at(eval::kChineseWords), eval::kCharacters);
  ASSERT_EQ(by_characters.notes.size(), 1U);
  EXPECT_NE(by_characters.notes[0].find("--jieba"), std::string::npos) << by_characters.notes[0];
  eval::set_jieba(WINNOW_EVAL_TEST_DATA "/jieba");
  const eval::Plan by_words = plan_of("dureader");
  EXPECT_NE(by_words.configuration.at(eval::kChineseWords), eval::kCharacters);
  EXPECT_TRUE(by_words.notes.empty());
  EXPECT_FALSE(plan_of("lcc").configuration.contains(eval::kChineseWords));
}

TEST_F(PlanTest, ClassesAreOfTheRun) {
  const auto ab = plan_of("trec", {"a", "b"}).configuration, ac = plan_of("trec", {"a", "c"}).configuration;
  EXPECT_NE(ab.at(eval::kClassesDigest), ac.at(eval::kClassesDigest));
  EXPECT_EQ(ab.at("samples_digest"), ac.at("samples_digest"));  // that of earlier versions, whose runs go on
  EXPECT_FALSE(plan_of("lcc").configuration.contains(eval::kClassesDigest));
}

TEST_F(EvaluationTest, AStoppedRunGoesOn) {
  EXPECT_FALSE(run(fidelity(), {.should_stop = [] { return true; }}));
  EXPECT_TRUE(run(fidelity()));
}

TEST_F(EvaluationTest, ShardsFillOneFolder) {
  EvaluationOptions options = fidelity();
  options.limit = 2;
  std::int64_t n_done = 0;
  for (const char* shard : {"1/3", "3/3", "2/3"}) {
    const bool has_samples = std::string_view(shard) != "3/3";
    options.shard = shard;
    n_done = 0;
    EXPECT_TRUE(run(options, {.on_progress = [&](std::int64_t done, std::int64_t) { n_done = done; }}));
    EXPECT_EQ(n_done > 0, has_samples) << shard;
    EXPECT_EQ(fs::exists(fs::path(folder_) / ("answers-" + std::string(1, shard[0]) + "-of-3.jsonl")), has_samples);
  }
  const std::string csv = evaluation_csv({folder_});
  options.shard = "1/1";
  EXPECT_TRUE(run(options));
  EXPECT_EQ(evaluation_csv({folder_}), csv);  // no work was left
}

TEST_F(EvaluationTest, WhatCannotBeRunIsRefused) {
  const auto with = [](auto change) {
    EvaluationOptions options = fidelity();
    change(options);
    return options;
  };
  EXPECT_EQ(failure(with([](auto& o) { o.benchmarks.clear(); })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.benchmarks = {"fidelityy"}; })), ErrorCode::kNotFound);
  EXPECT_EQ(failure(with([](auto& o) { o.benchmarks = {"fidelity:niahh"}; })), ErrorCode::kNotFound);
  EXPECT_EQ(failure(with([](auto& o) { o.benchmarks = {"fidelity:perplexity"}; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.benchmarks = {"fidelity:fidelity:niah"}; })), ErrorCode::kNotFound);
  EXPECT_EQ(failure(with([](auto& o) { o.methods = {"snapkvv"}; })), ErrorCode::kNotFound);
  EXPECT_EQ(failure(with([](auto& o) { o.budgets.clear(); })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.question = "never"; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.limit = -1; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.shard = "4/3"; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.batch = 0; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.lengths = {0}; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.lengths = {1000}; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.depths = {101}; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.benchmarks = {"fidelity", "fidelity"}; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.lengths = {80, 80}; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.tasks = {"fidelity", "fidelity"}; })), ErrorCode::kInvalidArgument);
  EXPECT_EQ(failure(with([](auto& o) { o.lengths = {500}; })), ErrorCode::kContextFull);  // with the continuation
  EXPECT_FALSE(fs::exists(folder_));
  EXPECT_TRUE(run(fidelity()));
  EXPECT_EQ(failure(with([](auto& o) { o.seed = 7; })), ErrorCode::kInvalidArgument);  // the folder of another run
}

TEST_F(EvaluationTest, BenchmarksAreListed) {
  bool has_ruler = false;
  for (const BenchmarkInfo& benchmark : evaluation_benchmarks()) {
    has_ruler = has_ruler || (benchmark.name == "ruler" && benchmark.tasks.size() > 5 && !benchmark.summary.empty());
  }
  EXPECT_TRUE(has_ruler);
}

}  // namespace
}  // namespace winnow
