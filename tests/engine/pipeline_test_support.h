// Helpers of pipeline tests: ranks that are threads of this process, and a record of what a program sees of its
// sessions.
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine_test_support.h"
#include "winnow/pipeline.h"

namespace winnow::test {

inline constexpr int kBatch = 48;

// The record of what a program sees of its sessions.
struct Seen {
  std::vector<std::vector<float>> logits;
  std::vector<std::vector<std::vector<std::int32_t>>> kept;  // SessionStatistics::kept at each look
  HeadPositions positions;
  std::int64_t entries_kept = 0;
  std::size_t bytes_kept = 0, bytes_in_pages = 0;

  void look(const Session& session) {
    logits.push_back(logits_of(session));
    const SessionStatistics statistics = session.statistics();
    kept.push_back(statistics.kept);
    entries_kept += statistics.entries_kept;
    bytes_kept += statistics.bytes_kept;
    bytes_in_pages += statistics.bytes_in_pages;
    for (std::size_t l = 0; l < statistics.kept.size(); ++l) {
      for (std::size_t h = 0; h < statistics.kept[l].size(); ++h) {
        positions.push_back(session.positions(static_cast<int>(l), static_cast<int>(h)));
      }
    }
  }
  bool operator==(const Seen&) const = default;
};

using Program = std::function<Seen(Engine&)>;

inline EngineOptions rank_options(std::shared_ptr<PipelineLink> link, std::vector<int> first_layers) {
  EngineOptions options{.n_threads = 1, .n_batch = kBatch};
  options.pipeline = std::move(link);
  options.pipeline_layers = std::move(first_layers);
  return options;
}

inline EngineOptions led_options(std::shared_ptr<PipelineLink> link, std::vector<int> first_layers) {
  EngineOptions options = rank_options(std::move(link), std::move(first_layers));
  options.is_led = true;
  return options;
}

// Runs `body` on every rank, each in its own thread, and returns the messages of the exceptions.
inline std::vector<std::string> on_ranks(int n_ranks, const std::function<void(std::shared_ptr<PipelineLink>)>& body) {
  std::vector<std::string> errors(static_cast<std::size_t>(n_ranks));
  std::vector<std::thread> threads;
  for (const std::shared_ptr<PipelineLink>& link : local_pipeline(n_ranks)) {
    threads.emplace_back([&errors, &body, link] {
      try {
        body(link);
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(link->rank())] = error.what();
        link->fail(error.what());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

// Expects the errors of all ranks to name the memory limit, and those of the other ranks to name the failing rank.
inline void expect_failure_of(int failing, const std::vector<std::string>& errors) {
  for (std::size_t rank = 0; rank < errors.size(); ++rank) {
    const bool is_others = rank != static_cast<std::size_t>(failing);
    EXPECT_EQ(errors[rank].starts_with("rank " + std::to_string(failing) + " failed: "), is_others) << errors[rank];
    EXPECT_NE(errors[rank].find("limit"), std::string::npos) << errors[rank];
  }
}

// Runs the program on all ranks and on one engine, and expects the same. first_layers: of every rank but the first one.
inline void expect_same(const std::shared_ptr<const Model>& model, const std::vector<int>& first_layers,
                        const Program& program) {
  const auto whole = Engine::create(model, {.n_threads = 1, .n_batch = kBatch});
  const Seen expected = program(*whole);
  const int n_ranks = static_cast<int>(first_layers.size()) + 1;
  std::vector<Seen> seen(static_cast<std::size_t>(n_ranks));
  const std::vector<std::string> errors = on_ranks(n_ranks, [&](const std::shared_ptr<PipelineLink>& link) {
    const auto engine = Engine::create(model, rank_options(link, first_layers));
    seen[static_cast<std::size_t>(link->rank())] = program(*engine);
  });
  for (std::size_t rank = 0; rank < seen.size(); ++rank) {
    EXPECT_EQ(errors[rank], "") << rank;
    EXPECT_EQ(seen[rank].kept, expected.kept) << rank;
    EXPECT_EQ(seen[rank].positions, expected.positions) << rank;
    EXPECT_TRUE(seen[rank].logits == expected.logits) << rank;
    EXPECT_EQ(seen[rank].entries_kept, expected.entries_kept) << rank;
    EXPECT_EQ(seen[rank].bytes_kept, expected.bytes_kept) << rank;
    EXPECT_EQ(seen[rank].bytes_in_pages, expected.bytes_in_pages) << rank;
  }
}

// Runs the program on rank 0 and on one engine, and expects the same and, after its end, no memory held by other ranks.
inline void expect_led(const std::shared_ptr<const Model>& model, const std::vector<int>& first_layers,
                       const Program& program) {
  const Seen expected = program(*Engine::create(model, {.n_threads = 1, .n_batch = kBatch}));
  Seen seen;
  const std::vector<std::string> errors =
      on_ranks(static_cast<int>(first_layers.size()) + 1, [&](const std::shared_ptr<PipelineLink>& link) {
        const auto engine = Engine::create(model, led_options(link, first_layers));
        if (link->rank() == 0) {
          seen = program(*engine);
        } else {
          engine->follow();
          EXPECT_EQ(engine->memory().kv_bytes_in_use, 0U) << link->rank();
        }
      });
  EXPECT_EQ(errors, std::vector<std::string>(first_layers.size() + 1));
  EXPECT_EQ(seen.kept, expected.kept);
  EXPECT_EQ(seen.positions, expected.positions);
  EXPECT_TRUE(seen == expected);
}

// Runs a prompt, some answer tokens, a turn, and a fork that diverges.
inline Seen conversation(Engine& engine, const SessionOptions& options, int n_prompt = 400) {
  const int n_vocab = engine.model()->info().n_vocab;
  Seen seen;
  Session session = engine.open(options);
  session.prefill(random_tokens(n_prompt, n_vocab, 4));
  seen.look(session);
  for (const Token token : {5, 9, 11}) session.decode(token);
  seen.look(session);
  Session fork = session.fork();
  session.append(random_tokens(70, n_vocab, 5));
  seen.look(session);
  fork.decode(7);
  seen.look(fork);
  std::vector<Session*> both = {&session, &fork};
  engine.decode(both, std::vector<Token>{3, 4});
  seen.look(session);
  seen.look(fork);
  return seen;
}

}  // namespace winnow::test
