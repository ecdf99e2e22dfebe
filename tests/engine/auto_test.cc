// The methods auto and auto-fast as sessions: bits by the budget, later turns, shared prefills, memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <vector>

#include "engine/engine_impl.h"
#include "engine/engine_test_support.h"
#include "expect_error.h"
#include "sanitizers.h"

namespace winnow::test {
namespace {

SessionOptions auto_options(const std::string& method, const std::string& budget) {
  SessionOptions options;
  options.eviction = EvictionOptions::parse(method);
  options.budget = Budget::parse(budget);
  return options;
}

// The bytes of all entries, and the number of entries in more bits.
struct Stored {
  double bytes;
  std::int64_t n_high = 0;
};

Stored stored(Session& session) {
  Stored found{.bytes = static_cast<double>(session.statistics().bytes_kept)};
  const RaggedCache& cache = session.impl().cache;
  for (int l = 0; l < cache.shape().n_layer(); ++l) {
    for (int h = 0; h < cache.shape().layer(l).n_kv_head; ++h) {
      for (const kernels::EntryRun& run : cache.entries(l, h).runs) {
        const std::optional<HighTypes>& high = cache.shape().high;
        const bool is_high = high && run.key_type == high->key_type && run.value_type == high->value_type;
        found.n_high += is_high ? run.n_entries : 0;
      }
    }
  }
  return found;
}

// Returns a model whose second layer reacts so sharply to keys that coding them in 4 bits gives another attention.
TinyModelOptions sharp_model(float gain = 16) {
  return {.n_layer = 3,
          .n_head = 4,
          .n_kv_head = 2,
          .head_dim = 32,
          .gain_of = [gain](const std::string& name) { return name == "blk.1.attn_k.weight" ? gain : 1.0F; },
          .seed = 3};
}

TEST(Auto, RaisesHeadsThatCodesWouldCostTooMuch) {
  for (const char* method : {"auto", "auto-fast", "ada-snapkv:bits=4,window=8"}) {
    for (const char* budget : {"2%bytes", "8%bytes", "20%bytes", "10%"}) {
      SCOPED_TRACE(std::string(method) + " " + budget);
      if (kHasSanitizers && std::string(budget).starts_with("2")) continue;  // 2% and 20%
      const auto engine = Engine::create(tiny_model(sharp_model()), {.n_threads = 2, .n_batch = 64});
      const auto plain = Engine::create(tiny_model(sharp_model(1)), {.n_threads = 2, .n_batch = 64});
      const std::vector<Token> prompt = random_tokens(1500, 300, 4);
      Session session = engine->open(auto_options(method, budget)), other = plain->open(auto_options(method, budget));
      session.prefill(prompt);
      other.prefill(prompt);
      const std::vector<std::vector<bool>> none = {{false, false}, {false, false}, {false, false}};
      EXPECT_EQ(other.statistics().raised, none);
      const SessionStatistics statistics = session.statistics();
      EXPECT_EQ(statistics.raised, (std::vector<std::vector<bool>>{{false, false}, {true, true}, {false, false}}));
      const RaggedCache& cache = session.impl().cache;
      for (int h = 0; h < 2; ++h) {
        const std::span<const kernels::EntryRun> runs = cache.entries(1, h).runs;
        for (const kernels::EntryRun& run : runs.subspan(1)) {
          EXPECT_EQ(run.key_type, EntryType::kQ8_0);
          EXPECT_EQ(run.value_type, EntryType::kQ8_0);
        }
      }
      if (std::string(budget).ends_with("bytes")) {
        // The bytes are those of a session without raised heads, up to one page more.
        const auto slack = static_cast<double>(cache.shape().page_bytes(0));
        EXPECT_LE(stored(session).bytes, stored(other).bytes + slack);
        EXPECT_GE(stored(session).bytes, 0.85 * stored(other).bytes);
        EXPECT_LT(statistics.entries_kept, other.statistics().entries_kept);
      } else {
        EXPECT_EQ(statistics.entries_kept, other.statistics().entries_kept);
      }
      // Later tokens are appended, and a file holds the session.
      session.append(random_tokens(40, 300, 5));
      const std::string path = testing::TempDir() + "raised.session";
      session.save(path);
      Session loaded = engine->load_session(path);
      EXPECT_EQ(loaded.statistics().raised, statistics.raised);
      loaded.decode(7);
      session.decode(7);
      EXPECT_EQ(logits_of(loaded), logits_of(session));
    }
  }
}

// A loss bounds what codes cost by itself, in the first prompt as in later turns.
TEST(Auto, ALossRaisesNoHeads) {
  const auto engine = Engine::create(tiny_model(sharp_model()), {.n_threads = 2, .n_batch = 64});
  Session session = engine->open(auto_options("auto", "kl=3"));
  const std::vector<std::vector<bool>> none = {{false, false}, {false, false}, {false, false}};
  session.prefill(random_tokens(1500, 300, 4));
  EXPECT_EQ(session.statistics().raised, none);
  session.prefill(random_tokens(200, 300, 5));
  EXPECT_EQ(session.statistics().raised, none);
}

// Cuts while decoding have no reference rows to choose by: a file says which heads are raised.
TEST(Auto, RaisedHeadsOfAFileStayRaised) {
  const auto engine = Engine::create(tiny_model(sharp_model()), {.n_threads = 2, .n_batch = 64});
  SessionOptions options = auto_options("ada-snapkv:bits=4,window=8", "8%");
  options.decode_cut = SessionOptions::DecodeCut::kTotal;
  options.cut_every = 4;
  Session session = engine->open(options);
  session.prefill(random_tokens(1500, 300, 4));
  const std::string path = testing::TempDir() + "stay_raised.session";
  session.save(path);
  Session loaded = engine->load_session(path);
  const std::vector<Token> later = random_tokens(40, 300, 5);
  EXPECT_EQ(decode_all(loaded, later), decode_all(session, later));
  for (int h = 0; h < 2; ++h) {
    for (const kernels::EntryRun& run : loaded.impl().cache.entries(1, h).runs.subspan(1)) {
      EXPECT_NE(run.key_type, EntryType::kR4);
    }
  }
}

// A repeated prompt looks up at least one entry of each token, a sixth of 6 heads' entries; twice as much must fit.
TEST(Auto, RepeatsThePromptWhereWhatIsLookedUpMayFit) {
  const auto engine = Engine::create(tiny_model({.n_layer = 3, .n_head = 4, .n_kv_head = 2, .head_dim = 32}),
                                     {.n_threads = 1, .n_batch = 64});
  const auto scorer = [&](const char* method, const char* budget) {
    return engine->open(auto_options(method, budget)).options().eviction.scorer;
  };
  EXPECT_EQ(scorer("auto", "34%"), "combined");
  EXPECT_EQ(scorer("auto", "33%"), "rms");
  EXPECT_EQ(scorer("auto", "20%bytes"), "combined");  // in few bits
  EXPECT_EQ(scorer("auto", "5%bytes"), "rms");
  EXPECT_EQ(scorer("auto:bits=own", "20%bytes"), "rms");
  // Explicit options stay. A budget that is no fraction of the prompt says nothing beforehand.
  EXPECT_EQ(scorer("auto:repeat=always", "5%bytes"), "combined");
  EXPECT_EQ(scorer("auto:rms-weight=3", "5%bytes"), "combined");
  EXPECT_EQ(scorer("auto:rms-weight=2", "5%bytes"), "combined");
  EXPECT_EQ(scorer("auto:rms-weight=by-budget", "5%bytes"), "rms");
  EXPECT_EQ(scorer("kvzip", "5%bytes"), "kvzip");
  EXPECT_EQ(scorer("auto", "64"), "combined");
  EXPECT_EQ(engine->open(auto_options("auto", "5%bytes")).options().eviction.text(), "auto:scorer=rms");
  const std::string text = engine->open(auto_options("auto:rms-weight=2", "90%")).options().eviction.text();
  EXPECT_NE(text.find("rms-weight=2"), std::string::npos) << text;
  const std::vector<Token> prompt = random_tokens(300, 300, 4);
  Session automatic = engine->open(auto_options("auto", "5%bytes"));
  Session fast = engine->open(auto_options("auto-fast", "5%bytes"));
  automatic.prefill(prompt);
  fast.prefill(prompt);
  EXPECT_EQ(logits_of(automatic), logits_of(fast));
}

// The repeat is late from a sixth of the entries on, or as an option asks. A budget that is no fraction of the
// prompt says nothing beforehand.
TEST(Auto, RepeatsThePromptLateWhereMuchStays) {
  const auto engine = Engine::create(tiny_model({.n_layer = 12, .n_head = 4, .n_kv_head = 2, .head_dim = 32}),
                                     {.n_threads = 1, .n_batch = 64});
  const auto repeat = [&](const char* method, const char* budget) {
    return engine->open(auto_options(method, budget)).options().eviction.text_of("repeat");
  };
  EXPECT_EQ(repeat("auto", "17%"), "late");
  EXPECT_EQ(repeat("auto", "16%"), "fitting");
  EXPECT_EQ(repeat("auto", "7%bytes"), "late");  // in few bits
  EXPECT_EQ(repeat("auto", "3%bytes"), "fitting");
  EXPECT_EQ(repeat("auto:bits=own", "10%bytes"), "fitting");
  EXPECT_EQ(repeat("auto:repeat=always", "20%bytes"), "late");
  EXPECT_EQ(repeat("auto:rms-weight=3", "20%bytes"), "late");
  EXPECT_EQ(repeat("auto:repeat=whole", "20%bytes"), "whole");
  EXPECT_EQ(repeat("auto:repeat=late", "2%bytes"), "late");
  EXPECT_EQ(repeat("auto", "64"), "fitting");
  EXPECT_EQ(repeat("auto-fast", "20%bytes"), "fitting");
}

// Running text weighs more from a sixth of the entries on, unless the method says how much.
TEST(Auto, WeighsRunningTextByTheBudget) {
  const auto engine = Engine::create(tiny_model({.n_layer = 12, .n_head = 4, .n_kv_head = 2, .head_dim = 32}),
                                     {.n_threads = 1, .n_batch = 64});
  const auto weight = [&](const char* method, const char* budget) {
    return engine->open(auto_options(method, budget)).options().eviction.text_of("rms-weight");
  };
  EXPECT_EQ(weight("auto", "17%"), "4");
  EXPECT_EQ(weight("auto", "16%"), "by-budget");  // 2
  EXPECT_EQ(weight("auto", "5%bytes"), "4");      // in few bits
  EXPECT_EQ(weight("auto", "2%bytes"), "by-budget");
  EXPECT_EQ(weight("auto:repeat=whole", "5%bytes"), "4");
  EXPECT_EQ(weight("auto:rms-weight=3", "20%bytes"), "3");
  EXPECT_EQ(weight("auto:rms-weight=2", "20%bytes"), "2");
  EXPECT_EQ(weight("auto", "64"), "by-budget");
}

// A question in the prompt weighs, but not in chunks, which end before it.
TEST(Auto, WeighsAQuestionInSight) {
  const auto engine = wide_engine(1);
  const auto method = [&](const char* text, const char* budget, int chunk = 0) {
    SessionOptions options = auto_options(text, budget);
    options.question_aware = true;
    options.prefill_chunk = chunk;
    return engine->open(options).options().eviction;
  };
  EXPECT_EQ(method("auto:repeat=whole", "34%").text(), "auto:question=last,rms-weight=4,repeat=whole");
  EXPECT_EQ(method("auto", "5%bytes").text(), "auto:scorer=rms,question=last");
  EXPECT_EQ(method("ada-snapkv:scorer=rms", "34%").text_of("question"), "last");
  EXPECT_EQ(method("auto-fast", "34%", 64).text(), "auto-fast");
  EXPECT_EQ(method("snapkv", "34%").text(), "snapkv");
  EXPECT_EQ(engine->open(auto_options("auto-fast", "34%")).options().eviction.text(), "auto-fast");
  // Other entries stay, and a file says that the question weighed.
  SessionOptions options = auto_options("auto-fast", "34%");
  options.question_aware = true;
  Session aware = engine->open(options), agnostic = engine->open(auto_options("auto-fast", "34%"));
  const std::vector<Token> prompt = random_tokens(300, 300, 4);
  aware.prefill(prompt);
  agnostic.prefill(prompt);
  EXPECT_NE(aware.positions(1, 0), agnostic.positions(1, 0));
  const std::string path = testing::TempDir() + "aware.session";
  aware.save(path);
  EXPECT_EQ(engine->load_session(path).options().eviction.text(), aware.options().eviction.text());
}

TEST(Auto, StoresInBitsByTheBudget) {
  const auto engine = Engine::create(tiny_model({.n_layer = 2, .n_head = 4, .n_kv_head = 2, .head_dim = 32}),
                                     {.n_threads = 2, .n_batch = 64});
  const std::vector<Token> prompt = random_tokens(700, 300, 4);
  for (const char* method : {"auto:repeat=always", "auto:fast"}) {
    const struct {
      const char* budget;
      const char* keys;
      const char* values;
      double high = 0;  // share of the kept entries in more bits
    } cases[] = {{"40%bytes", "q8_0", "q8_0"},
                 {"20%bytes", "q8_0+r4", "q8_0+r4", 0.3},
                 {"9%bytes", "q8_0+r4", "q8_0+r4", 0.22},
                 {"8%bytes", "q8_0+r4", "q8_0+r4", 0.15},
                 {"7%bytes", "r4+r3", "r4+r3", 0.5},
                 {"2.4%bytes", "r3", "r3"},
                 {"15%", "q8_0", "q8_0"},
                 {"12%", "r4", "r4"},
                 {"64", "r4", "r4"},
                 {"20KiB", "r4", "r4"}};
    for (const auto& c : cases) {
      Session session = engine->open(auto_options(method, c.budget));
      EXPECT_EQ(session.options().stored_key_types(), c.keys) << c.budget;
      EXPECT_EQ(session.options().stored_value_types(), c.values) << c.budget;
      session.prefill(prompt);
      const double wanted = c.high * static_cast<double>(session.statistics().entries_kept);
      EXPECT_LE(static_cast<double>(stored(session).n_high), wanted) << c.budget;
      EXPECT_GE(static_cast<double>(stored(session).n_high), wanted - kPageEntries) << c.budget;
      if (Budget::parse(c.budget).unit != Budget::Unit::kByteFraction) continue;
      const double most = Budget::parse(c.budget).amount * 700 * 4 * 2 * 32 * 2;
      EXPECT_LE(static_cast<double>(session.statistics().bytes_kept), most) << method << c.budget;
      EXPECT_GT(static_cast<double>(session.statistics().bytes_kept), most - 200 - kPageEntries * (2 * 34 - 2 * 18))
          << method << c.budget;
    }
  }
  // A head size of 16 cannot be stored in 8 bits.
  Session narrow = small_engine()->open(auto_options("auto:repeat=always", "20%bytes"));
  narrow.prefill(prompt);
  EXPECT_EQ(stored(narrow).n_high, 0);
  EXPECT_EQ(narrow.options().stored_key_types(), "r4");
  expect_error(ErrorCode::kInvalidArgument, "multiple of 32",
               [] { small_engine()->open(auto_options("auto:bits=8:0.3,4", "20%bytes")); });

  SessionOptions options = auto_options("auto", "10%");
  options.key_type = EntryType::kQ8_0;
  expect_error(ErrorCode::kInvalidArgument, "bits=own", [&] { engine->open(options); });
  options.eviction.bits = {};
  EXPECT_EQ(engine->open(options).options().value_type, EntryType::kF16);
  options.eviction.bits = *Bits::parse("8");
  EXPECT_EQ(engine->open(options).options().value_type, EntryType::kQ8_0);
}

// Heads of 128 numbers and more have fewer bits, for more entries, unless the method says how many.
TEST(Auto, GivesWideHeadsFewerBits) {
  const auto engine = Engine::create(tiny_model({.n_layer = 2, .n_head = 4, .n_kv_head = 2, .head_dim = 128}),
                                     {.n_threads = 2, .n_batch = 64});
  const struct {
    const char* budget;
    const char* types;
    const char* method;
  } cases[] = {{"40%bytes", "q8_0", "auto-fast"},
               {"20%bytes", "q8_0+r4", "auto-fast:bits=8:0.1,4"},
               {"10%bytes", "r4+r3", "auto-fast:bits=4:0.5,3"},
               {"5%bytes", "r4+r3", "auto-fast"},
               {"2%bytes", "r3", "auto-fast"},
               {"20%", "q8_0", "auto-fast"}};
  for (const auto& c : cases) {
    Session session = engine->open(auto_options("auto-fast", c.budget));
    EXPECT_EQ(session.options().stored_key_types(), c.types) << c.budget;
    EXPECT_EQ(session.options().eviction.text(), c.method) << c.budget;
  }
  EXPECT_EQ(engine->open(auto_options("auto-fast:bits=8:0.3,4", "10%bytes")).options().stored_key_types(), "q8_0+r4");
}

TEST(Auto, WhatFollowsACutHas8BitsUntilTheNext) {
  const auto engine = wide_engine();
  const std::vector<Token> prompt = random_tokens(600, 300, 4), turn = random_tokens(100, 300, 5);
  // Returns the types of full pages of tokens from 600 on.
  const auto types = [](Session& session) {
    std::set<std::pair<EntryType, EntryType>> found;
    const RaggedCache& cache = session.impl().cache;
    for (int l = 0; l < cache.shape().n_layer(); ++l) {
      for (int h = 0; h < cache.shape().layer(l).n_kv_head; ++h) {
        for (const kernels::EntryRun& run : cache.entries(l, h).runs) {
          if (run.positions[0] >= 600 && run.n_entries == kPageEntries) found.insert({run.key_type, run.value_type});
        }
      }
    }
    return found;
  };
  using Types = std::set<std::pair<EntryType, EntryType>>;
  const Types in_8_bits = {{EntryType::kQ8_0, EntryType::kQ8_0}}, in_4_bits = {{EntryType::kR4, EntryType::kR4}};
  Session session = engine->open(auto_options("auto:repeat=always", "5%bytes"));
  session.prefill(prompt);
  session.append(turn);
  EXPECT_EQ(types(session), in_8_bits);
  Session fork = session.fork();
  decode_all(fork, random_tokens(40, 300, 6));
  EXPECT_EQ(types(fork), in_8_bits);
  // The budget has room for the whole turn.
  Session cut_again = engine->open(auto_options("auto:bits=4", "400"));
  cut_again.prefill(prompt);
  cut_again.append(turn);
  EXPECT_EQ(types(cut_again), in_8_bits);
  cut_again.prefill(random_tokens(60, 300, 7));
  EXPECT_EQ(types(cut_again), in_4_bits);

  // The types of a cache without cuts hold for all entries.
  SessionOptions own;
  own.key_type = own.value_type = EntryType::kR4;
  Session uncut = engine->open(own);
  uncut.prefill(prompt);
  uncut.append(turn);
  EXPECT_EQ(types(uncut), in_4_bits);
}

TEST(Auto, NumberOfThreadsDoesNotMatter) {
  const std::vector<Token> prompt = random_tokens(400, 300, 4), later = random_tokens(20, 300, 5);
  std::vector<std::vector<float>> expected;
  for (const int n_threads : {1, 2, 5}) {
    const auto engine = Engine::create(tiny_model(kSmallModel), {.n_threads = n_threads, .n_batch = 48});
    Session session = engine->open(auto_options("auto:repeat=always", "10%bytes"));
    session.prefill(prompt);
    const std::vector<std::vector<float>> logits = decode_all(session, later);
    if (expected.empty()) expected = logits;
    EXPECT_EQ(logits, expected) << n_threads << " threads";
  }
}

TEST(Auto, GoesOnWithLaterTurnsChunksAndForks) {
  const auto engine = small_engine();
  const std::vector<Token> prompt = random_tokens(500, 300, 4), turn = random_tokens(90, 300, 5);
  SessionOptions options = auto_options("auto:repeat=always", "12%bytes");
  Session session = engine->open(options);
  session.prefill(prompt);
  Session fork = session.fork();
  session.prefill(turn);
  const double most = 0.12 * 590 * 4 * 2 * 16 * 2;
  EXPECT_LE(static_cast<double>(session.statistics().bytes_kept), most);
  EXPECT_GT(static_cast<double>(session.statistics().bytes_kept), 0.95 * most);
  fork.prefill(turn);
  EXPECT_EQ(logits_of(fork), logits_of(session));
  EXPECT_EQ(kept_positions(fork), kept_positions(session));
  decode_all(fork, random_tokens(70, 300, 6));
  options.prefill_chunk = 128;
  Session chunked = engine->open(options);
  chunked.prefill(prompt);
  EXPECT_LE(static_cast<double>(chunked.statistics().bytes_kept), 0.12 * 500 * 4 * 2 * 16 * 2);
  EXPECT_LE(engine->memory().kv_bytes_in_use, engine->memory().kv_bytes_peak);
}

// Returns the scores of the entries that a session's cuts scored, by [layer, KV head, position].
std::map<std::tuple<int, int, std::int32_t>, float> scores_of(Session& session) {
  std::map<std::tuple<int, int, std::int32_t>, float> scores;
  for (int l = 0; l < session.model()->info().n_layer(); ++l) {
    const std::vector<std::vector<float>> layer = session.impl().scores.layer(l);
    for (int h = 0; h < static_cast<int>(layer.size()); ++h) {
      const std::vector<float>& head = layer[static_cast<std::size_t>(h)];
      const std::vector<std::int32_t> positions = session.positions(l, h);
      EXPECT_LE(head.size(), positions.size());
      for (std::size_t i = 0; i < head.size(); ++i) scores[{l, h, positions[i]}] = head[i];
    }
  }
  return scores;
}

// An entry that a turn does not attend to stays for the attention that the prompt paid to it: no entry is dropped whose
// score was better than that of the worst entry that stays.
TEST(Auto, EntriesStayWithTheBestScoreOfAnyCut) {
  constexpr std::int32_t kWindow = 8, kSinks = 4;
  for (const char* method : {"auto", "auto-fast", "auto:bits=8:0.3,4"}) {
    const auto engine = wide_engine();
    Session session = engine->open(auto_options(method, "160"));
    session.prefill(random_tokens(600, 300, 4));
    for (const int seed : {5, 6, 7}) {
      const auto before = scores_of(session);
      ASSERT_GT(before.size(), 6U * 100U) << method;
      session.prefill(random_tokens(60, 300, static_cast<unsigned>(seed)));
      const auto after = scores_of(session);
      float worst = std::numeric_limits<float>::max();
      for (const auto& [entry, score] : after) {
        const std::int32_t position = std::get<2>(entry);
        if (position >= kSinks && position < session.n_tokens() - kWindow) worst = std::min(worst, score);
      }
      ASSERT_GT(worst, 0.0F) << method;
      std::size_t n_gone = 0;
      for (const auto& [entry, score] : before) {
        const auto found = after.find(entry);
        if (found != after.end()) {
          EXPECT_GE(found->second, score) << method;
        } else {
          ++n_gone;
          EXPECT_LE(score, worst) << method;
        }
      }
      EXPECT_GT(n_gone, 0U) << method;
    }
  }
}

TEST(Auto, ScoresOfEarlierCutsAreCountedForkedAndSaved) {
  const auto engine = wide_engine();
  const std::string path = testing::TempDir() + "scores.session";
  Session session = engine->open(auto_options("auto", "160"));
  EXPECT_EQ(session.statistics().score_bytes, 0U);
  session.prefill(random_tokens(600, 300, 4));
  // Each kept entry outside the windows of the 6 heads has a score of 2 bytes.
  EXPECT_EQ(session.statistics().score_bytes, 2U * (6U * 160U - 6U * 8U));
  EXPECT_EQ(engine->memory().kv_bytes_in_use, session.statistics().bytes_in_pages + session.statistics().score_bytes);
  Session fork = session.fork();
  EXPECT_EQ(engine->memory().kv_bytes_in_use, session.statistics().bytes_in_pages + session.statistics().score_bytes);
  const auto before = scores_of(session);
  fork.prefill(random_tokens(60, 300, 5));
  EXPECT_NE(scores_of(fork), before);
  EXPECT_EQ(scores_of(session), before);
  session.save(path);
  Session loaded = engine->load_session(path);
  EXPECT_EQ(scores_of(loaded), before);
  loaded.prefill(random_tokens(60, 300, 5));
  EXPECT_EQ(scores_of(loaded), scores_of(fork));
  EXPECT_EQ(logits_of(loaded), logits_of(fork));
  std::filesystem::remove(path);
  session.clear();
  EXPECT_EQ(session.statistics().score_bytes, 0U);

  // Methods that do not ask for scores keep none.
  Session other = engine->open(auto_options("snapkv:fit=values,bits=4", "160"));
  other.prefill(random_tokens(600, 300, 4));
  EXPECT_EQ(other.statistics().score_bytes, 0U);
}

TEST(Auto, SharesAPrefillWithOtherCodes) {
  const auto engine = small_engine();
  const std::vector<Token> prompt = random_tokens(300, 300, 4), later = random_tokens(3, 300, 6);
  const auto open_all = [&] {
    std::vector<Session> sessions;
    sessions.push_back(engine->open());
    sessions.push_back(engine->open(auto_options("auto:repeat=always", "12%bytes")));
    sessions.push_back(engine->open(auto_options("auto-fast", "8%bytes")));
    sessions.push_back(engine->open(auto_options("snapkv:fit=values,bits=4", "30%")));
    return sessions;
  };
  std::vector<Session> together = open_all(), alone = open_all();
  std::vector<Session*> pointers;
  for (Session& session : together) pointers.push_back(&session);
  engine->prefill(pointers, prompt);
  for (std::size_t i = 0; i < alone.size(); ++i) {
    alone[i].prefill(prompt);
    EXPECT_EQ(kept_positions(together[i]), kept_positions(alone[i])) << i;
    EXPECT_EQ(decode_all(together[i], later), decode_all(alone[i], later)) << i;
  }
}

constexpr const char* kMixed[] = {"auto:bits=8:0.3,4", "auto-fast:bits=8:0.5,4", "snapkv:bits=8:0.4,4,fit=values",
                                  "lava:bits=8:0.4,4", "auto:bits=4:0.3,3,repeat=always"};

TEST(BitsByRank, SumToTheBudget) {
  const auto engine = wide_engine();
  for (const char* method : kMixed) {
    for (const char* budget : {"20%bytes", "100KiB"}) {
      Session session = engine->open(auto_options(method, budget));
      session.prefill(random_tokens(900, 300, 4));
      const Budget parsed = Budget::parse(budget);
      const double most = parsed.unit == Budget::Unit::kBytes ? parsed.amount : parsed.amount * 900 * 6 * 2 * 32 * 2;
      const Stored found = stored(session);
      EXPECT_LE(found.bytes, most) << method;
      // The slack is an entry and less than a page in more bits, per layer if the method cuts layers by themselves.
      const double page = kPageEntries * (2 * 34 - 2 * 18);
      const bool is_global = session.options().eviction.layers == "global";
      EXPECT_GT(found.bytes, most - (is_global ? 1 : 3) * page - 2 * 44) << method;
      const EvictionOptions& eviction = session.options().eviction;
      const double wanted = eviction.bits.high_fraction * static_cast<double>(session.statistics().entries_kept);
      EXPECT_LE(static_cast<double>(found.n_high), wanted) << method;
      EXPECT_GT(static_cast<double>(found.n_high), wanted - (is_global ? 1 : 3) * kPageEntries) << method;
    }
  }
}

TEST(BitsByRank, AreTheBestEntries) {
  const auto engine = wide_engine();
  const std::vector<Token> prompt = random_tokens(900, 300, 4);
  // The entries that a third of the budget keeps are, up to whole pages of a head, those in more bits of the whole one.
  Session whole = engine->open(auto_options("snapkv:layers=global,heads=global,bits=8:0.34,4,window=8", "150"));
  Session third = engine->open(auto_options("snapkv:layers=global,heads=global,window=8", "51"));
  whole.prefill(prompt);
  third.prefill(prompt);
  std::int64_t n_high = 0, n_both = 0;
  for (int l = 0; l < 3; ++l) {
    for (int h = 0; h < 2; ++h) {
      const std::vector<std::int32_t> best = third.positions(l, h);
      for (const kernels::EntryRun& run : whole.impl().cache.entries(l, h).runs) {
        if (run.key_type != EntryType::kQ8_0) continue;
        n_high += run.n_entries;
        for (std::int32_t i = 0; i < run.n_entries; ++i) {
          n_both += std::binary_search(best.begin(), best.end(), run.positions[i]) ? 1 : 0;
        }
      }
    }
  }
  EXPECT_GE(n_high, 8 * kPageEntries);
  EXPECT_GT(n_both, n_high * 3 / 4);
}

TEST(BitsByRank, NumberOfThreadsAndCompanyDoNotMatter) {
  const std::vector<Token> prompt = random_tokens(500, 300, 4), turn = random_tokens(60, 300, 6);
  for (const char* method : kMixed) {
    std::vector<float> expected;
    for (const int n_threads : {1, 3}) {
      const auto engine = wide_engine(n_threads);
      Session session = engine->open(auto_options(method, "15%bytes"));
      Session other = engine->open(auto_options("auto:bits=4,repeat=always", "10%bytes"));
      Session* together[] = {&session, &other};
      if (n_threads == 1) session.prefill(prompt);
      if (n_threads == 3) engine->prefill(together, prompt);
      std::vector<float> logits = decode_all(session, turn).back();
      if (expected.empty()) expected = logits;
      EXPECT_EQ(logits, expected) << method;
    }
  }
}

TEST(BitsByRank, GoOnWithTurnsForksFilesAndCutsWhileDecoding) {
  const auto engine = wide_engine();
  const std::vector<Token> prompt = random_tokens(600, 300, 4), turn = random_tokens(90, 300, 5);
  const std::string path = testing::TempDir() + "bits_by_rank.session";
  for (const char* method : kMixed) {
    Session session = engine->open(auto_options(method, "15%bytes"));
    session.prefill(prompt);
    Session fork = session.fork();
    session.save(path);
    Session loaded = engine->load_session(path);
    for (Session* each : {&session, &fork, &loaded}) each->prefill(turn);
    EXPECT_GT(stored(session).n_high, 0) << method;
    const double most = 0.15 * 690 * 6 * 2 * 32 * 2;
    EXPECT_LE(stored(session).bytes, most) << method;
    EXPECT_GT(stored(session).bytes, 0.9 * most) << method;
    for (Session* each : {&fork, &loaded}) {
      EXPECT_EQ(kept_positions(*each), kept_positions(session)) << method;
      EXPECT_EQ(stored(*each).n_high, stored(session).n_high) << method;
      EXPECT_EQ(logits_of(*each), logits_of(session)) << method;
    }
    const std::vector<std::int32_t> positions = session.positions(1, 1);
    EXPECT_TRUE(std::is_sorted(positions.begin(), positions.end()));
    EXPECT_EQ(decode_all(fork, random_tokens(50, 300, 7)), decode_all(loaded, random_tokens(50, 300, 7))) << method;
  }
  std::filesystem::remove(path);
  SessionOptions options = auto_options("snapkv:bits=8:0.4,4", "150");
  options.decode_cut = SessionOptions::DecodeCut::kTotal;
  options.cut_every = 5;
  Session session = engine->open(options);
  session.prefill(prompt);
  const std::int64_t n_kept = session.statistics().entries_kept;
  decode_all(session, random_tokens(50, 300, 7));
  EXPECT_EQ(session.statistics().entries_kept, n_kept);
  EXPECT_GT(stored(session).n_high, 0);
}

TEST(Auto, TakesNoMoreThanWasEstimated) {
  for (const char* method :
       {"auto", "auto-fast", "snapkv:bits=4", "auto:bits=8:0.4,4", "snapkv:bits=8:0.5,4", "full"}) {
    const auto engine = std::string_view(method).find("8:") == std::string_view::npos ? small_engine() : wide_engine();
    for (const std::int32_t chunk : {0, 100}) {
      for (const int n_later : {1, 40}) {
        SessionOptions options;
        options.key_type = options.value_type = EntryType::kR4;
        if (std::string_view(method) != "full") options = auto_options(method, "10%bytes");
        options.prefill_chunk = std::string_view(method) == "full" ? 0 : chunk;
        const MemoryEstimate estimate = engine->estimate(options, 600, n_later);
        Session session = engine->open(options);
        engine->reset_peak();
        session.prefill(random_tokens(600, 300, 2));
        session.append(random_tokens(n_later, 300, 3));
        EXPECT_LE(engine->memory().kv_bytes_peak, estimate.kv_bytes_peak) << method << " " << chunk << " " << n_later;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::test
