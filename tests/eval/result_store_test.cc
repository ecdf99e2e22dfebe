#include "eval/run/result_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "model/tiny_model.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

using Json = nlohmann::json;

const Json kConfiguration{{"model_fingerprint", "1"}, {"methods", {"snapkv"}}, {"budgets", {"20%"}}, {"answers", 4}};
const Json kDefaults{{"batch", 32}};

Answer answer_number(int i) {
  Answer answer;
  answer.key = {"b", "t", "s" + std::to_string(i), 0, "agnostic", "snapkv", "20%"};
  answer.text = "text \"" + std::to_string(i) + "\"\n\xF0\x9F\x90\x88";
  answer.score = 0.1 * i;
  answer.nll = 1.0 / 3;
  answer.nll_tokens = 7;
  answer.entries_full = 100;
  answer.entries_kept = 20;
  answer.fidelity = Fidelity{0.125, 0.5, 2.5};
  return answer;
}

class ResultStoreTest : public testing::Test {
 protected:
  std::string folder() const { return directory_.file("run"); }
  std::string answers() const { return folder() + "/answers-1-of-1.jsonl"; }
  std::unique_ptr<ResultStore> open(const Json& configuration = kConfiguration, const Shard& shard = {}) const {
    return std::make_unique<ResultStore>(folder(), configuration, kDefaults, shard);
  }
  static void expect_refused(const std::function<void()>& work, const std::string& word) {
    try {
      work();
      ADD_FAILURE() << "no error about " << word;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(word), std::string::npos) << error.what();
    }
  }
  test::TemporaryDirectory directory_;
};

TEST_F(ResultStoreTest, AnswersComeBack) {
  open()->append(answer_number(3));
  const StoredRun run = read_run(folder());
  ASSERT_EQ(run.answers.size(), 1U);
  const Answer& back = run.answers.begin()->second;
  EXPECT_EQ(to_json(back), to_json(answer_number(3)));
  EXPECT_EQ(back.text, answer_number(3).text);
  EXPECT_EQ(*back.nll, 1.0 / 3);
  EXPECT_FALSE(back.bytes_peak.has_value());
  EXPECT_EQ(run.configuration.at("batch"), 32);
}

TEST_F(ResultStoreTest, EntryTypesTellAnswersApart) {
  Answer other = answer_number(3);
  other.key.types = {"q8_0", "q4_0"};
  {
    const auto store = open();
    store->append(answer_number(3));
    EXPECT_FALSE(store->has(other.key));
    store->append(other);
  }
  const StoredRun run = read_run(folder());
  ASSERT_EQ(run.answers.size(), 2U);
  EXPECT_TRUE(run.answers.contains(other.key));
  EXPECT_EQ(to_json(other).at("key_type"), "q8_0");
  EXPECT_EQ(to_json(other).at("value_type"), "q4_0");
}

// Lines of old versions have no entry types.
TEST_F(ResultStoreTest, LinesWithoutEntryTypesHaveThoseOfTheirRun) {
  Json old = to_json(answer_number(1));
  old.erase("key_type");
  old.erase("value_type");
  Json quantised = kConfiguration;
  quantised["key_type"] = "q8_0";
  quantised["value_type"] = "q4_0";
  for (const auto& [configuration, types] :
       {std::pair{kConfiguration, EntryTypes()}, std::pair{quantised, EntryTypes{"q8_0", "q4_0"}}}) {
    open(configuration);
    std::ofstream(answers(), std::ios::app) << old.dump() << "\n";
    AnswerKey key = answer_number(1).key;
    key.types = types;
    EXPECT_TRUE(read_run(folder()).answers.contains(key)) << types.text();
    EXPECT_TRUE(open(configuration)->has(key)) << types.text();
    std::filesystem::remove_all(folder());
  }
}

TEST_F(ResultStoreTest, ATornLineIsDroppedAndTheRestKept) {
  {
    const auto store = open();
    store->append(answer_number(1));
    store->append(answer_number(2));
  }
  const std::string whole = test::read_bytes(answers());
  const std::size_t second = whole.find('\n') + 1;
  for (const std::size_t size : {second, second + 1, second + 50, whole.size() - 1}) {
    std::filesystem::resize_file(answers(), size);
    {
      const auto store = open();
      EXPECT_TRUE(store->has(answer_number(1).key)) << size;
      EXPECT_FALSE(store->has(answer_number(2).key)) << size;
      store->append(answer_number(2));
    }
    EXPECT_EQ(test::read_bytes(answers()), whole) << size;
  }
}

TEST_F(ResultStoreTest, ALongTornLineIsDropped) {
  open()->append(answer_number(1));
  const std::string whole = test::read_bytes(answers());
  for (const std::size_t size : {1U, 4095U, 4096U, 4097U, 100'000U}) {
    std::ofstream(answers(), std::ios::app) << std::string(size, '{');
    EXPECT_TRUE(open()->has(answer_number(1).key));
    EXPECT_EQ(test::read_bytes(answers()), whole) << size;
  }
}

TEST_F(ResultStoreTest, NothingIsReadWithoutBound) {
  open()->append(answer_number(1));
  std::filesystem::resize_file(answers(), std::uintmax_t{20} << 30);
  expect_refused([&] { read_run(folder()); }, "256 MiB, the limit for a line of a run");
  std::filesystem::resize_file(folder() + "/run.json", std::uintmax_t{20} << 30);
  expect_refused([&] { open(); }, "64 MiB, the limit for the configuration of a run");
  expect_refused([&] { read_run(folder()); }, "64 MiB, the limit for the configuration of a run");
}

TEST_F(ResultStoreTest, ADamagedLineIsNamed) {
  open()->append(answer_number(1));
  std::ofstream(answers(), std::ios::app) << "{\"benchmark\": \n";
  expect_refused([&] { open(); }, "line 2");
  expect_refused([&] { read_run(folder()); }, "line 2");
}

TEST_F(ResultStoreTest, AConfigurationOfAnotherShapeIsRefused) {
  open();
  for (const char* text : {"", "7", "{}", R"({"run": 7})", R"({"run": {"key_type": 7}})"}) {
    std::ofstream(folder() + "/run.json") << text;
    expect_refused([&] { read_run(folder()); }, "is damaged");
  }
}

TEST_F(ResultStoreTest, AnotherRunIsRefused) {
  open();
  Json other = kConfiguration;
  other["budgets"] = {"10%"};
  expect_refused([&] { open(other); }, "budgets is [\"20%\"] there");
  Json batch = kConfiguration;
  batch["batch"] = 8;
  expect_refused([&] { open(batch); }, "batch");
  batch["batch"] = 32;
  EXPECT_NO_THROW(open(batch));
}

// Runs of earlier versions do not name some settings; they go on.
TEST_F(ResultStoreTest, AnotherOfTheLaterSettingsIsAnotherRun) {
  for (const char* setting : {kModelMetadata, kChineseWords, kClassesDigest}) {
    Json named = kConfiguration, other = kConfiguration;
    named[setting] = "1";
    other[setting] = "2";
    open();
    EXPECT_NO_THROW(open(named));
    std::filesystem::remove_all(folder());
    open(named);
    EXPECT_NO_THROW(open(named));
    expect_refused([&] { open(other); }, std::string(setting) + " is \"1\" there");
    std::filesystem::remove_all(folder());
  }
}

TEST_F(ResultStoreTest, AFolderOfOtherThingsIsRefused) {
  std::filesystem::create_directories(folder());
  std::ofstream(folder() + "/letter.txt") << "dear";
  expect_refused([&] { open(); }, "has files");
}

TEST_F(ResultStoreTest, ResumingNothingIsAnError) {
  expect_refused([&] { ResultStore(folder(), kConfiguration, kDefaults, {}, ResultStore::Start::kResume); },
                 "--resume");
  EXPECT_FALSE(std::filesystem::exists(folder()));
}

TEST_F(ResultStoreTest, OneWriterAShard) {
  const auto first = open();
  expect_refused([&] { open(); }, "another process");
  const auto other = open(kConfiguration, {1, 2});
  other->append(answer_number(1));
  EXPECT_EQ(read_run(folder()).answers.size(), 1U);
}

TEST_F(ResultStoreTest, ShardsSeeEachOther) {
  open(kConfiguration, {0, 2})->append(answer_number(1));
  const auto second = open(kConfiguration, {1, 2});
  EXPECT_TRUE(second->has(answer_number(1).key));
  second->append(answer_number(2));
  EXPECT_EQ(read_run(folder()).answers.size(), 2U);
}

TEST_F(ResultStoreTest, FailuresCountUntilTheyAreForgotten) {
  Answer failed{.key = answer_number(1).key, .error = "no room"};
  open()->append(failed);
  const auto store = open();
  EXPECT_TRUE(store->has(failed.key));
  store->forget_failures();
  EXPECT_FALSE(store->has(failed.key));
  store->append(answer_number(1));
  EXPECT_EQ(read_run(folder()).answers.at(failed.key).error, "");
}

// The failure's file comes after that of the later attempt, which ran as another shard.
TEST_F(ResultStoreTest, AnAnswerStaysWhateverShardFailedBefore) {
  open(kConfiguration, {1, 2})->append({.key = answer_number(1).key, .error = "no room"});
  {
    const auto store = open();
    store->forget_failures();
    store->append(answer_number(1));
  }
  const auto store = open();
  store->forget_failures();
  EXPECT_TRUE(store->has(answer_number(1).key));
}

}  // namespace
}  // namespace winnow::eval
