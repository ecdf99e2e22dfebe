// The runner on tiny models writes the answers that single sessions compute.
#include "eval/run/runner.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <set>

#include "base/utf8.h"
#include "eval/run/decoding.h"
#include "eval/runner_fixture.h"
#include "expect_error.h"
#include "winnow/log_softmax.h"

namespace winnow::eval {
namespace {

// Computes the answer of one cell by hand: prefill, append the question, decode greedily.
Answer by_hand(Engine& engine, const PromptBuilder& prompts, const WorkItem& item, const Cell& cell) {
  const Model& model = *engine.model();
  SessionOptions options;
  options.eviction = cell.eviction;
  options.budget = cell.budget;
  Session session = engine.open(options);
  const bool is_aware = item.mode == QuestionMode::kAware;
  session.prefill(is_aware ? prompts.whole(item.sample, 0).tokens : prompts.context(item.sample).tokens);
  Answer answer;
  answer.entries_kept = session.statistics().entries_kept;
  answer.entries_full = session.statistics().entries_full;
  if (!is_aware) session.append(prompts.question(item.sample, 0));
  const std::vector<Token> reference = prompts.reference(item.sample, 0, item.mode);
  Session forced = session.fork();
  double nll = 0;
  for (const Token token : reference) {
    nll -= log_probability(forced.logits(), token);
    forced.decode(token);
  }
  answer.nll = nll / static_cast<double>(reference.size());
  std::string text;
  for (int i = 0; i < item.sample.turns[0].max_new; ++i) {
    const Token token = most_likely(session.logits());
    if (model.is_end_of_generation(token)) break;
    text += model.token_text(token);
    ++answer.answer_tokens;
    session.decode(token);
  }
  answer.text = valid_utf8(text);
  return answer;
}

// The sample with the fewest tokens does not have the fewest bytes.
TEST_F(RunnerTest, BudgetsAreCheckedAtTheLengthOfEverySample) {
  std::vector<WorkItem> items;
  for (int i = 0; i < 3; ++i) items.push_back(test::work_item(i, QuestionMode::kAgnostic, 300));
  items[1].sample.context.clear();
  for (int i = 0; i < 50; ++i) items[1].sample.context += "the";  // one token
  items[2].sample.context = test::text_of(100, 1);
  items.push_back(items[2]);
  items.back().mode = QuestionMode::kAware;
  items.push_back(items[2]);
  items.back().sample.turns[0].max_new = 1000;  // leaves no room for the context
  const RunnerOptions wanted = options({"streaming-llm:sinks=14,window=1"}, {"20%"});
  const PromptBuilder prompts(model_, true, wanted.n_ctx);
  const std::vector<std::int32_t> lengths = prompt_lengths(prompts, test::pointers(items));
  std::set<std::int32_t> expected;
  for (int i = 0; i < 3; ++i) expected.insert(std::ssize(prompts.context(items[i].sample).tokens));
  expected.insert(std::ssize(prompts.whole(items[3].sample, 0).tokens));
  EXPECT_EQ(lengths, std::vector<std::int32_t>(expected.begin(), expected.end()));
  ASSERT_EQ(lengths.size(), 4U);
  EXPECT_EQ(lengths.front(), std::ssize(prompts.context(items[1].sample).tokens));
  EXPECT_GT(items[1].sample.context.size(), items[2].sample.context.size());
  EXPECT_NO_THROW(check_cells(*engine_, wanted, std::span(lengths).subspan(1)));
  test::expect_error(ErrorCode::kInvalidArgument, "below the 84 that are always kept",
                     [&] { check_cells(*engine_, wanted, lengths); });
}

TEST_F(RunnerTest, AnswersAreThoseOfSessionsByThemselves) {
  const PromptBuilder prompts(model_, true, 600);
  for (const int batch : {1, 32}) {
    const RunnerOptions matrix = options({"full", "snapkv", "ada-snapkv", "streaming-llm"}, {"50%", "40"}, batch);
    const std::vector<WorkItem> items = several_items();
    const auto answers = run("batch" + std::to_string(batch), items, matrix);
    ASSERT_EQ(answers.size(), items.size() * matrix.cells.size());
    for (const WorkItem& item : items) {
      for (const Cell& cell : matrix.cells) {
        const AnswerKey key{"made-up",   "task",          item.sample.id, 0, std::string(question_mode_name(item.mode)),
                            cell.method, cell.budget_text};
        ASSERT_TRUE(answers.contains(key));
        const Answer& answer = answers.at(key);
        const Answer expected = by_hand(*engine_, prompts, item, cell);
        EXPECT_EQ(answer.error, "");
        EXPECT_EQ(answer.entries_kept, expected.entries_kept);
        EXPECT_EQ(answer.entries_full, expected.entries_full);
        EXPECT_NEAR(*answer.nll, *expected.nll, 1e-4);
        EXPECT_EQ(answer.text, expected.text) << cell.method << " " << cell.budget_text;
        EXPECT_EQ(answer.answer_tokens, expected.answer_tokens);
        EXPECT_EQ(answer.bytes_peak.has_value(), batch == 1);
      }
    }
  }
}

TEST_F(RunnerTest, AStoppedRunEndsWithTheSameTable) {
  const std::vector<WorkItem> items = several_items();
  const RunnerOptions matrix = options({"full", "snapkv", "tova"}, {"50%", "20%"}, 8);
  const std::string expected = table(run("whole", items, matrix));
  for (const int stop_after : {1, 2, 7, 11, 17}) {
    const std::string name = "stopped" + std::to_string(stop_after);
    const auto part = run(name, items, matrix, stop_after);
    EXPECT_GE(part.size(), static_cast<std::size_t>(stop_after));
    EXPECT_LT(part.size(), items.size() * matrix.cells.size());
    EXPECT_EQ(table(run(name, items, matrix)), expected) << stop_after;
  }
}

TEST_F(RunnerTest, LittleMemoryMakesSmallerGroups) {
  const std::vector<WorkItem> items = several_items();
  RunnerOptions matrix = options({"full", "snapkv", "tova"}, {"50%", "20%"});
  const auto expected = run("much", items, matrix);
  const PromptBuilder prompts(model_, true, 600);
  SessionOptions full;
  const MemoryEstimate one = engine_->estimate(full, 260, 300);
  matrix.kv_memory = one.kv_bytes_peak + one.hidden_bytes;
  const auto answers = run("little", items, matrix);
  ASSERT_EQ(answers.size(), expected.size());
  int n_smaller = 0;
  for (const auto& [key, answer] : answers) {
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(answer.text, expected.at(key).text);
    n_smaller += answer.n_together < expected.at(key).n_together;
  }
  EXPECT_GT(n_smaller, 0);
}

// If samples would fill a batch, only as many run together as their tokens allow, down to one. A method that reads its
// prompt again does not keep the others waiting.
TEST_F(RunnerTest, TokensBoundWhatGoesTogether) {
  const std::vector<WorkItem> items = several_items();
  RunnerOptions matrix = options({"full", "kvzip", "snapkv"}, {"50%"});
  const auto expected = run("unbounded", items, matrix);
  for (const auto& [key, answer] : expected) {
    EXPECT_EQ(answer.error, "");
    EXPECT_EQ(answer.n_together, 18);
  }
  matrix.batch_tokens = 1;
  const auto answers = run("bounded", items, matrix);
  ASSERT_EQ(answers.size(), expected.size());
  for (const auto& [key, answer] : answers) {
    EXPECT_EQ(answer.text, expected.at(key).text);
    EXPECT_EQ(answer.n_together, key.method == "kvzip" ? 1 : 2) << key.method;
  }
  // A resumed run does not compute a complete group again.
  const std::string whole = table(answers);
  const auto part = run("stopped", items, matrix, 2);
  EXPECT_EQ(part.size(), 2U);
  EXPECT_EQ(table(run("stopped", items, matrix)), whole);
}

TEST_F(RunnerTest, WorkIsToldWhileNoAnswerIsThere) {
  WorkItem forced = test::work_item(7, QuestionMode::kAgnostic);
  forced.protocol = Protocol::kFidelity;
  forced.sample.turns[0] = {.references = {test::text_of(40, 9)}, .max_new = 32};
  for (const std::vector<WorkItem>& items : {several_items(), std::vector<WorkItem>{forced}}) {
    const PromptBuilder prompts(model_, true, 600);
    const RunnerOptions matrix = options({"full", "tova", "kvzip"}, {"50%"});
    ResultStore store(folder(items.size() == 1 ? "forced" : "asked"), kConfiguration, {}, {});
    std::vector<EvaluationWork> told;
    RunnerCallbacks callbacks;
    callbacks.score = [](const Sample&, const Turn&, std::string_view) { return 0.5; };
    callbacks.on_work = [&](const EvaluationWork& work) { told.push_back(work); };
    Runner runner(engine_, prompts, matrix, callbacks);
    ASSERT_TRUE(runner.run(test::pointers(items), store));
    ASSERT_GT(told.size(), 3U);
    EXPECT_EQ(told.front().answers_done, 0);
    EXPECT_LT(told.front().share, 0.5);
    double share = 0;
    for (const EvaluationWork& work : told) {
      EXPECT_EQ(work.answers_total, static_cast<std::int64_t>(items.size() * 3));
      EXPECT_GT(work.tokens_total, 200);
      EXPECT_LE(work.tokens_done, work.tokens_total);
      EXPECT_GE(work.share, share);
      share = work.share;
    }
    EXPECT_LE(share, 1);
    EXPECT_GT(share, 0.5);
  }
}

TEST_F(RunnerTest, WhatDoesNotFitIsWrittenDown) {
  RunnerOptions matrix = options({"full", "snapkv"}, {"20%"});
  matrix.kv_memory = 1000;
  const auto answers = run("none", {test::work_item(0, QuestionMode::kAgnostic)}, matrix);
  ASSERT_EQ(answers.size(), 2U);
  for (const auto& [key, answer] : answers)
    EXPECT_NE(answer.error.find("--kv-memory is 1000B"), std::string::npos) << answer.error;
}

TEST_F(RunnerTest, AFailedSampleDoesNotLoseTheOthers) {
  std::vector<WorkItem> items{test::work_item(0, QuestionMode::kAgnostic), test::work_item(1, QuestionMode::kAgnostic),
                              test::work_item(2, QuestionMode::kAgnostic)};
  items[1].sample.turns[0].question = std::string(700, 'q');  // longer than the context
  const auto answers = run("failed", items, options({"full", "snapkv"}, {"50%"}));
  ASSERT_EQ(answers.size(), 6U);
  for (const auto& [key, answer] : answers) EXPECT_EQ(answer.error.empty(), key.id != "s1") << answer.error;
}

TEST_F(RunnerTest, ABudgetThatOneMethodCannotMeetFailsAlone) {
  // 6 % of some 220 tokens is less than 20 sinks.
  const auto answers = run("window", {test::work_item(0, QuestionMode::kAgnostic)},
                           options({"snapkv:sinks=20", "tova:window=1"}, {"6%"}));
  ASSERT_EQ(answers.size(), 2U);
  for (const auto& [key, answer] : answers)
    EXPECT_EQ(answer.error.empty(), key.method == "tova:window=1") << answer.error;
}

TEST_F(RunnerTest, ABudgetThatNoPromptCanMeetIsRefusedAtOnce) {
  const PromptBuilder prompts(model_, true, 600);
  test::expect_error(ErrorCode::kInvalidArgument, "raise the budget to at least 9 tokens",
                     [&] { Runner(engine_, prompts, options({"snapkv:sinks=8"}, {"8"}), {}); });
}

TEST_F(RunnerTest, LargeBudgetsKeepEverything) {
  const auto answers =
      run("large", {test::work_item(0, QuestionMode::kAgnostic)}, options({"full", "snapkv"}, {"500", "50"}));
  for (const auto& [key, answer] : answers) {
    EXPECT_EQ(answer.is_whole, key.budget == "500");
    EXPECT_EQ(answer.entries_kept == answer.entries_full, key.budget != "50");
  }
}

TEST_F(RunnerTest, SeveralQuestionsShareTheCutContext) {
  WorkItem item = test::work_item(0, QuestionMode::kAgnostic);
  item.sample.turns.push_back({.question = " and what else? ", .answer_prefix = "", .references = {"v"}, .max_new = 4});
  const auto answers = run("turns", {item}, options({"snapkv"}, {"50%"}));
  ASSERT_EQ(answers.size(), 2U);
  // The second question alone has the same answer, since the first one leaves no trace.
  WorkItem alone = item;
  alone.sample.turns.erase(alone.sample.turns.begin());
  const auto second = run("alone", {alone}, options({"snapkv"}, {"50%"}));
  EXPECT_EQ(answers.rbegin()->second.text, second.begin()->second.text);
  EXPECT_NEAR(*answers.rbegin()->second.nll, *second.begin()->second.nll, 1e-4);
}

TEST_F(RunnerTest, LaterTurnsSeeTheReferenceOfTheFirst) {
  WorkItem item = test::work_item(0, QuestionMode::kAware);
  item.sample.turns.push_back({.question = "next", .follow_up = "xyz\n\nnext", .references = {"v"}, .max_new = 4});
  const auto answers = run("multi", {item}, options({"snapkv"}, {"50%"}));
  ASSERT_EQ(answers.size(), 2U);
  const PromptBuilder prompts(model_, true, 600);
  SessionOptions session_options;
  session_options.eviction = EvictionOptions::parse("snapkv");
  session_options.budget = Budget::parse("50%");
  Session session = engine_->open(session_options);
  session.prefill(prompts.whole(item.sample, 0).tokens);
  session.append(prompts.follow_up(item.sample, 1));
  EXPECT_NEAR(*answers.rbegin()->second.nll,
              -log_probability(session.logits(), prompts.reference(item.sample, 1, item.mode).at(0)), 1e-4);
}

// A turn that cannot be asked leaves the later ones without what they continue.
TEST_F(RunnerTest, TurnsAfterAFailedOneFailToo) {
  std::vector<WorkItem> items{test::work_item(0, QuestionMode::kAware)};
  std::vector<Turn>& turns = items[0].sample.turns;
  turns.push_back({.question = std::string(700, 'q'), .follow_up = "q", .references = {"v"}, .max_new = 4});
  turns.push_back({.question = "next", .follow_up = "next", .references = {"v"}, .max_new = 4});
  const RunnerOptions matrix = options({"full", "snapkv"}, {"50%"});
  const PromptBuilder prompts(model_, true, 2000);  // leaves no room for the second turn in a context of 600
  for (const Protocol protocol : {Protocol::kAnswer, Protocol::kAnswerFidelity}) {
    items[0].protocol = protocol;
    const std::string path = folder(protocol == Protocol::kAnswer ? "asked" : "forced");
    ResultStore store(path, kConfiguration, {}, {});
    Runner runner(engine_, prompts, matrix,
                  {.score = [](const Sample&, const Turn&, std::string_view) { return 0.5; }});
    ASSERT_TRUE(runner.run(test::pointers(items), store));
    const auto answers = read_run(path).answers;
    ASSERT_EQ(answers.size(), 6U);
    for (const auto& [key, answer] : answers) {
      const std::string& error = answer.error;
      if (key.turn == 0) {
        EXPECT_EQ(error, "");
      } else if (key.turn == 1) {
        EXPECT_NE(error.find("context"), std::string::npos) << error;
      } else {
        EXPECT_TRUE(error.starts_with("an earlier turn could not be asked: ")) << error;
      }
    }
  }
}

TEST_F(RunnerTest, StopsAtANewlineButNeverBeforeAToken) {
  WorkItem item = test::work_item(0, QuestionMode::kAgnostic);
  item.sample.stop_at_newline = true;
  const auto answers = run("newline", {item}, options({"full"}, {}));
  const Answer& answer = answers.begin()->second;
  EXPECT_GE(answer.answer_tokens, 1);
  EXPECT_EQ(answer.text.find('\n'), std::string::npos);
}

std::vector<float> log_softmax(std::span<const float> logits) {
  std::vector<float> row;
  for (Token token = 0; token < static_cast<Token>(logits.size()); ++token) {
    row.push_back(static_cast<float>(log_probability(logits, token)));
  }
  return row;
}

TEST_F(RunnerTest, FidelityIsTheDivergenceFromTheFullCache) {
  WorkItem item = test::work_item(0, QuestionMode::kAgnostic);
  item.protocol = Protocol::kFidelity;
  item.sample.turns[0] = {.references = {test::text_of(40, 9)}, .max_new = 32};
  const auto answers = run("fidelity", {item}, options({"full", "snapkv", "tova"}, {"50%", "200"}));
  ASSERT_EQ(answers.size(), 5U);
  const PromptBuilder prompts(model_, true, 600);
  const PromptBuilder::Continued continued = prompts.continued(item.sample);
  for (const auto& [key, answer] : answers) {
    ASSERT_EQ(answer.error, "");
    SessionOptions session_options;
    session_options.eviction = EvictionOptions::parse(key.method);
    if (!key.budget.empty()) session_options.budget = Budget::parse(key.budget);
    Session cut = engine_->open(session_options), full = engine_->open({});
    cut.prefill(continued.text);
    full.prefill(continued.text);
    double kl = 0, nll = 0;
    int n_equal = 0;
    for (std::size_t i = 0; i < 32; ++i) {
      cut.decode(continued.continuation[i]);
      full.decode(continued.continuation[i]);
      kl += test::kl_divergence(full.logits(), cut.logits()) / 32;
      n_equal += most_likely(full.logits()) == most_likely(cut.logits());
      nll -= log_softmax(cut.logits())[static_cast<std::size_t>(continued.continuation[i + 1])] / 32;
    }
    EXPECT_NEAR(answer.fidelity->kl, kl, 1e-4 + 0.02 * kl) << key.method << key.budget;
    EXPECT_NEAR(answer.fidelity->top1, n_equal / 32.0, 1.01 / 32);
    EXPECT_NEAR(*answer.nll, nll, 1e-2);  // attention of many rows rounds to bf16
    EXPECT_EQ(answer.nll_tokens, 32);
    if (key.budget == "50%") {
      EXPECT_GT(answer.fidelity->kl, 1e-6);
    }
    if (key.budget.empty()) {
      EXPECT_EQ(answer.fidelity->kl, 0);
      EXPECT_EQ(answer.fidelity->top1, 1);
    }
  }
}

// The divergence includes the loss by quantising: the reference stays in f16 whatever the cells' entry types are.
TEST_F(RunnerTest, FidelityOfQuantisedEntriesIsTheDivergenceFromF16) {
  WorkItem item = test::work_item(0, QuestionMode::kAgnostic);
  item.protocol = Protocol::kFidelity;
  item.sample.turns[0] = {.references = {test::text_of(40, 9)}, .max_new = 32};
  const PromptBuilder prompts(model_, true, 600);
  const PromptBuilder::Continued continued = prompts.continued(item.sample);
  RunnerOptions matrix = options({"full", "tova"}, {"50%"});
  const LayerInfo& layer = model_->info().layers[0];
  const auto f16_entry_bytes = static_cast<std::uint64_t>(2 * (layer.key_dim + layer.value_dim) + 2);
  for (const auto& [key_type, value_type] : {std::pair{EntryType::kQ4_0, EntryType::kQ4_0},
                                             {EntryType::kQ8_0, EntryType::kQ4_0},
                                             {EntryType::kF16, EntryType::kQ4_0},
                                             {EntryType::kF32, EntryType::kF32}}) {
    matrix.key_type = key_type;
    matrix.value_type = value_type;
    const EntryTypes types = entry_types(key_type, value_type);
    const auto answers = run(std::string(entry_type_name(key_type)) + "-" + types.value, {item}, matrix);
    ASSERT_EQ(answers.size(), 2U);
    for (const auto& [key, answer] : answers) {
      ASSERT_EQ(answer.error, "");
      EXPECT_EQ(key.types, types);
      EXPECT_EQ(answer.bytes_full, static_cast<std::uint64_t>(answer.entries_full) * f16_entry_bytes) << types.key;
      SessionOptions cut_options{.key_type = key_type, .value_type = value_type};
      cut_options.eviction = EvictionOptions::parse(key.method);
      if (!key.budget.empty()) cut_options.budget = Budget::parse(key.budget);
      const SessionOptions full_options{.key_type = reference_type(key_type), .value_type = reference_type(value_type)};
      Session cut = engine_->open(cut_options), full = engine_->open(full_options);
      cut.prefill(continued.text);
      full.prefill(continued.text);
      // The tokens are fed as one turn, whose rows are coded at its end. Decoded one by one, some would be coded
      // before.
      const std::span<const Token> turn(continued.continuation.data(), 32);
      std::vector<std::vector<float>> exact;
      full.append(turn, {.on_progress = nullptr, .on_logits = [&](std::int32_t, std::span<const float> row) {
                           exact.emplace_back(row.begin(), row.end());
                         }});
      double kl = 0;
      std::size_t i = 0;
      cut.append(turn, {.on_progress = nullptr, .on_logits = [&](std::int32_t, std::span<const float> row) {
                          kl += test::kl_divergence(exact.at(i++), row) / 32;
                        }});
      EXPECT_NEAR(answer.fidelity->kl, kl, 1e-4 + 0.05 * kl) << key.method << " " << types.text();
      if (types != reference_types(types)) {
        EXPECT_GT(answer.fidelity->kl, 1e-5) << key.method << " " << types.text();
      } else if (key.budget.empty()) {
        EXPECT_EQ(answer.fidelity->kl, 0) << types.text();
      }
    }
  }
}

TEST_F(RunnerTest, AReferenceThatDoesNotFitIsWrittenDown) {
  WorkItem item = test::work_item(0, QuestionMode::kAgnostic);
  item.protocol = Protocol::kFidelity;
  item.sample.turns[0] = {.references = {test::text_of(40, 9)}, .max_new = 32};
  RunnerOptions matrix = options({"full"}, {});
  matrix.key_type = matrix.value_type = EntryType::kQ4_0;
  matrix.kv_memory = 1000;
  const auto answers = run("no-reference", {item}, matrix);
  ASSERT_EQ(answers.size(), 1U);
  EXPECT_NE(answers.begin()->second.error.find("the full cache to compare with needs"), std::string::npos)
      << answers.begin()->second.error;
}

TEST_F(RunnerTest, FidelityBeyondTheContextIsWrittenDown) {
  WorkItem item = test::work_item(0, QuestionMode::kAgnostic, 590);
  item.protocol = Protocol::kFidelity;
  item.sample.turns[0] = {.references = {test::text_of(40, 9)}, .max_new = 32};
  const auto answers = run("long", {item}, options({"snapkv"}, {"50%"}));
  EXPECT_NE(answers.begin()->second.error.find("context"), std::string::npos);
}

}  // namespace
}  // namespace winnow::eval
