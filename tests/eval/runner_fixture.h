// A fixture that runs the runner on a tiny model, with temporary folders.
#pragma once

#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "eval/run/runner.h"
#include "eval/run_test_support.h"

namespace winnow::eval {

inline const nlohmann::json kConfiguration{{"model_fingerprint", "1"}};

class RunnerTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    model_ = test::chat_model();
    engine_ = Engine::create(model_, {.n_threads = 1});
  }
  static void TearDownTestSuite() {
    engine_.reset();
    model_.reset();
  }

  static RunnerOptions options(const std::vector<std::string>& methods, const std::vector<std::string>& budgets,
                               int batch = 32) {
    return {.cells = make_cells(methods, budgets), .n_ctx = 600, .batch = batch, .kv_memory = std::size_t{1} << 30};
  }

  std::string folder(const std::string& name) const { return directory_.file(name); }

  // Runs into the folder and returns its answers. Stops after stop_after new answers if that is not negative.
  std::map<AnswerKey, Answer> run(const std::string& name, const std::vector<WorkItem>& items,
                                  const RunnerOptions& runner_options, int stop_after = -1) {
    const PromptBuilder prompts(model_, true, runner_options.n_ctx);
    ResultStore store(folder(name), kConfiguration, {}, {});
    std::int64_t n_before = -1, n_now = 0;
    RunnerCallbacks callbacks;
    callbacks.score = [](const Sample&, const Turn&, std::string_view answer) { return answer.empty() ? 0.0 : 0.5; };
    callbacks.on_progress = [&](std::int64_t done, std::int64_t) {
      if (n_before < 0) n_before = done;
      n_now = done - n_before;
    };
    callbacks.should_stop = [&] { return stop_after >= 0 && n_now >= stop_after; };
    Runner runner(engine_, prompts, runner_options, callbacks);
    const bool is_complete = runner.run(test::pointers(items), store);
    EXPECT_EQ(is_complete, stop_after < 0);
    return read_run(folder(name)).answers;
  }

  // Returns the answers as text, without the times.
  static std::string table(const std::map<AnswerKey, Answer>& answers) {
    std::string text;
    for (const auto& [key, answer] : answers) {
      nlohmann::json json = to_json(answer);
      for (const char* time : {"prefill_s", "evict_s", "decode_s"}) json.erase(time);
      text += json.dump() + "\n";
    }
    return text;
  }

  static std::vector<WorkItem> several_items() {
    std::vector<WorkItem> items;
    for (int i = 0; i < 3; ++i) {
      items.push_back(test::work_item(i, QuestionMode::kAgnostic));
      items.push_back(test::work_item(i, QuestionMode::kAware));
    }
    return items;
  }

  inline static std::shared_ptr<const Model> model_;
  inline static std::shared_ptr<Engine> engine_;
  test::TemporaryDirectory directory_;
};

}  // namespace winnow::eval
