// Fidelity over the full cache's answers, on a tiny model: the runner writes the numbers that single sessions give.
#include <gtest/gtest.h>

#include "base/utf8.h"
#include "eval/run/decoding.h"
#include "eval/runner_fixture.h"
#include "winnow/log_softmax.h"

namespace winnow::eval {
namespace {

class AnswerFidelity : public RunnerTest {
 protected:
  static WorkItem item_of(QuestionMode mode, int max_new) {
    WorkItem item = test::work_item(0, mode);
    item.protocol = Protocol::kAnswerFidelity;
    item.sample.turns[0].max_new = max_new;
    return item;
  }

  static Session open(const AnswerKey& key) {
    SessionOptions session_options;
    session_options.eviction = EvictionOptions::parse(key.method);
    if (!key.budget.empty()) session_options.budget = Budget::parse(key.budget);
    return engine_->open(session_options);
  }

  struct Expected {
    std::vector<Token> answer;
    double kl = 0, nll = 0, top1 = 0;
  };

  // The full cache answers, and its tokens are fed to both sessions. `first`: true if the first token's prediction
  // counts.
  static Expected by_hand(Session& full, Session& cut, int max_new, bool first) {
    Expected expected;
    int n_rows = 0, n_equal = 0;
    for (int i = 0;; ++i) {
      const Token token = most_likely(full.logits());
      const bool is_over = engine_->model()->is_end_of_generation(token);
      if (first || i > 0) {
        expected.kl += test::kl_divergence(full.logits(), cut.logits());
        n_equal += token == most_likely(cut.logits());
        if (!is_over) expected.nll -= log_probability(cut.logits(), token);
        ++n_rows;
      }
      if (is_over) break;
      expected.answer.push_back(token);
      if (i + 1 == max_new) break;
      full.decode(token);
      cut.decode(token);
    }
    expected.kl /= n_rows;
    expected.nll /= static_cast<double>(expected.answer.size()) - (first ? 0 : 1);
    expected.top1 = n_equal / static_cast<double>(n_rows);
    return expected;
  }

  static void expect_near(const AnswerKey& key, const Answer& answer, const Expected& expected) {
    const std::string what = key.method + " " + key.budget;
    ASSERT_EQ(answer.error, "") << what;
    ASSERT_TRUE(answer.fidelity) << what;
    EXPECT_NEAR(answer.fidelity->kl, expected.kl, 1e-4 + 0.02 * expected.kl) << what;
    // Attention of many rows rounds differently from that of one row, which may decide near ties differently.
    EXPECT_NEAR(answer.fidelity->top1, expected.top1, 1.01 / (static_cast<double>(expected.answer.size()) - 1)) << what;
    EXPECT_NEAR(*answer.nll, expected.nll, 1e-2) << what;
    if (!key.budget.empty()) {
      EXPECT_GT(answer.fidelity->kl, 1e-6) << what;
    } else {
      EXPECT_EQ(answer.fidelity->kl, 0) << what;
      EXPECT_EQ(answer.fidelity->top1, 1) << what;
      EXPECT_NEAR(*answer.nll, answer.fidelity->full_nll, 1e-6) << what;
    }
  }
};

TEST_F(AnswerFidelity, IsTheDivergenceOverTheFullCachesAnswer) {
  const WorkItem item = item_of(QuestionMode::kAgnostic, 12);
  const auto answers = run("agnostic", {item}, options({"full", "snapkv", "tova"}, {"50%", "40"}));
  ASSERT_EQ(answers.size(), 5U);
  const PromptBuilder prompts(model_, true, 600);
  for (const auto& [key, answer] : answers) {
    Session full = engine_->open({}), cut = open(key);
    for (Session* session : {&full, &cut}) {
      session->prefill(prompts.context(item.sample).tokens);
      session->append(prompts.question(item.sample, 0));
    }
    const Expected expected = by_hand(full, cut, 12, true);
    expect_near(key, answer, expected);
    EXPECT_EQ(answer.nll_tokens, std::ssize(expected.answer));
    std::string text;
    for (const Token token : expected.answer) text += model_->token_text(token);
    EXPECT_EQ(answer.text, valid_utf8(text));  // all methods have the same text
  }
}

// If the question is in the prompt, the answer's first token is predicted before the cut.
TEST_F(AnswerFidelity, AwareOfTheQuestionTheFirstTokenDoesNotCount) {
  const WorkItem item = item_of(QuestionMode::kAware, 12);
  const auto answers = run("aware", {item}, options({"full", "snapkv"}, {"40"}));
  ASSERT_EQ(answers.size(), 2U);
  const PromptBuilder prompts(model_, true, 600);
  for (const auto& [key, answer] : answers) {
    Session full = engine_->open({}), cut = open(key);
    for (Session* session : {&full, &cut}) session->prefill(prompts.whole(item.sample, 0).tokens);
    const Expected expected = by_hand(full, cut, 12, false);
    expect_near(key, answer, expected);
    EXPECT_EQ(answer.nll_tokens, std::ssize(expected.answer) - 1);
  }
  // A single token leaves none to compare.
  const auto none = run("one", {item_of(QuestionMode::kAware, 1)}, options({"full", "snapkv"}, {"40"}));
  ASSERT_EQ(none.size(), 2U);
  for (const auto& [key, answer] : none) {
    EXPECT_NE(answer.error.find("question mode agnostic"), std::string::npos) << answer.error;
  }
}

TEST_F(AnswerFidelity, TurnsAreThoseOfTheirQuestionsAlone) {
  for (const QuestionMode mode : {QuestionMode::kAgnostic, QuestionMode::kAware}) {
    WorkItem item = item_of(mode, 6);
    item.sample.turns.push_back(
        {.question = " and what else? ", .answer_prefix = "", .references = {"v"}, .max_new = 4});
    const std::string name(question_mode_name(mode));
    const auto answers = run("turns-" + name, {item}, options({"snapkv"}, {"50%"}));
    ASSERT_EQ(answers.size(), 2U);
    WorkItem alone = item;
    alone.sample.turns.erase(alone.sample.turns.begin());
    const Answer second = run("alone-" + name, {alone}, options({"snapkv"}, {"50%"})).begin()->second;
    const Answer& answer = answers.rbegin()->second;
    ASSERT_TRUE(answer.fidelity && second.fidelity) << answer.error << second.error;
    EXPECT_EQ(answer.text, second.text);
    EXPECT_NEAR(answer.fidelity->kl, second.fidelity->kl, 1e-4);
    EXPECT_EQ(answers.begin()->second.key.turn, 0);
  }
}

// Turns continue with one cache: the second sees the reference of the first.
TEST_F(AnswerFidelity, LaterTurnsGoOnWithTheCache) {
  WorkItem item = item_of(QuestionMode::kAware, 6);
  item.sample.turns.push_back({.question = "next", .follow_up = "xyz\n\nnext", .references = {"v"}, .max_new = 4});
  const auto answers = run("follow", {item}, options({"full", "snapkv"}, {"50%"}));
  ASSERT_EQ(answers.size(), 4U);
  const PromptBuilder prompts(model_, true, 600);
  for (const auto& [key, answer] : answers) {
    if (key.turn == 0) continue;
    Session full = engine_->open({}), cut = open(key);
    for (Session* session : {&full, &cut}) {
      session->prefill(prompts.whole(item.sample, 0).tokens);
      session->append(prompts.follow_up(item.sample, 1));
    }
    expect_near(key, answer, by_hand(full, cut, 4, true));
  }
}

// Groups after the one with the full cache are compared with the predictions that were kept of it.
TEST_F(AnswerFidelity, ManyGroupsAreComparedWithOneReference) {
  const WorkItem item = item_of(QuestionMode::kAgnostic, 6);
  const auto together = run("together", {item}, options({"full", "snapkv", "tova"}, {"50%"}));
  const auto alone = run("by-itself", {item}, options({"full", "snapkv", "tova"}, {"50%"}, 1));
  ASSERT_EQ(alone.size(), together.size());
  for (const auto& [key, answer] : alone) {
    ASSERT_TRUE(answer.fidelity) << answer.error;
    EXPECT_EQ(answer.n_together, 1);
    EXPECT_NEAR(answer.fidelity->kl, together.at(key).fidelity->kl, 1e-4);
  }
}

TEST_F(AnswerFidelity, OfQuantisedEntriesIsTheDivergenceFromF16) {
  RunnerOptions matrix = options({"full"}, {});
  matrix.key_type = matrix.value_type = EntryType::kQ4_0;
  const auto answers = run("q4_0", {item_of(QuestionMode::kAgnostic, 12)}, matrix);
  ASSERT_TRUE(answers.begin()->second.fidelity) << answers.begin()->second.error;
  EXPECT_GT(answers.begin()->second.fidelity->kl, 1e-5);
}

TEST_F(AnswerFidelity, AQuestionBeyondTheContextIsWrittenDown) {
  std::vector<WorkItem> items{item_of(QuestionMode::kAgnostic, 6), item_of(QuestionMode::kAgnostic, 6)};
  items[1].sample.id = "s1";
  items[0].sample.turns[0].question = std::string(700, 'q');
  const auto answers = run("long", items, options({"full", "snapkv"}, {"50%"}));
  ASSERT_EQ(answers.size(), 4U);
  for (const auto& [key, answer] : answers) EXPECT_EQ(answer.error.empty(), key.id == "s1") << answer.error;
}

}  // namespace
}  // namespace winnow::eval
