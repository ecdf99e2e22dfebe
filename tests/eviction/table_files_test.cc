#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "base/json_file.h"
#include "expect_error.h"
#include "winnow/error.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

using test::code_of;

class TableFiles : public ::testing::Test {
 protected:
  std::string write(const std::string& text) {
    std::ofstream(path_) << text;
    return path_;
  }
  void TearDown() override { std::remove(path_.c_str()); }

  std::string path_ = ::testing::TempDir() + "winnow_table_files_test_" +
                      ::testing::UnitTest::GetInstance()->current_test_info()->name() + ".json";
};

TEST_F(TableFiles, HeadImportanceAveragesTheScoresOfAHead) {
  const HeadImportance read =
      HeadImportance::load(write(R"({"0-0": [1, 3], "0-1": [4], "1-0": 0.5, "1-1": [0], "2-0": [1], "2-1": [2]})"));
  EXPECT_EQ(read.weight, (std::vector<std::vector<double>>{{2, 4}, {0.5, 0}, {1, 2}}));
}

TEST_F(TableFiles, HeadImportanceReadsAMatrix) {
  const HeadImportance read = HeadImportance::load(write("0.5\t1\t0\n0 0.25 1\n\n"));
  EXPECT_EQ(read.weight, (std::vector<std::vector<double>>{{0.5, 1, 0}, {0, 0.25, 1}}));
}

TEST_F(TableFiles, LayersMayHaveDifferentNumbersOfHeads) {
  const std::vector<std::vector<double>> expected{{1, 2}, {3}};
  EXPECT_EQ(HeadImportance::load(write("1 2\n3\n")).weight, expected);
  EXPECT_EQ(HeadImportance::load(write(R"({"0-0": [1], "0-1": [2], "1-0": [3]})")).weight, expected);

  UtilityProfile profile;
  profile.heads = {2, 0, 1};
  profile.ratios = {0.5};
  profile.kept = {0.25, 0.75, 0.5};
  profile.save(path_);
  const UtilityProfile read = UtilityProfile::load(path_);
  EXPECT_EQ(read.heads, profile.heads);
  EXPECT_EQ(read.kept, profile.kept);
}

TEST_F(TableFiles, BadHeadFilesAreRefused) {
  for (const char* text :
       {"", "[]", "{}", "{", R"({"0-0": "x"})", R"({"0-0": [-1]})", R"({"0-0": []})", R"({"a": [1]})",
        R"({"0-1": [1]})", R"({"0-0": [1], "1-1": [1]})", R"({"0-0": [0]})", "1 x\n", "0 0\n", "1 -1\n",
        R"({"-1-0": [1]})", R"({"99999999-0": [1]})", R"({"0-0": [1e999]})"}) {
    EXPECT_EQ(code_of([&] { HeadImportance::load(write(text)); }), ErrorCode::kBadFile) << text;
  }
  EXPECT_EQ(code_of([&] { HeadImportance::load(path_ + ".missing"); }), ErrorCode::kIo);
  EXPECT_EQ(code_of([&] { EvictionOptions::parse("headkv:head-file=" + path_ + ".missing"); }), ErrorCode::kIo);
}

TEST_F(TableFiles, ProfileRoundTrips) {
  UtilityProfile profile;
  profile.heads = {3, 3};
  profile.ratios = {0.1, 0.5};
  for (int i = 0; i < 12; ++i) profile.kept.push_back(i / 12.0);
  profile.model = "tiny";
  profile.scorer = "snapkv:window=32";
  profile.model_name = "Tiny \"one\"";
  profile.n_samples = 16;
  profile.n_tokens = 2000;
  profile.n_decode = 64;
  profile.seed = 0xFFFFFFFFFFFFFFFFU;
  profile.date = "2025-11-21";
  profile.tool = "0.1.0";
  profile.save(path_);
  const UtilityProfile read = UtilityProfile::load(path_);
  EXPECT_EQ(read.heads, profile.heads);
  EXPECT_EQ(read.ratios, profile.ratios);
  EXPECT_EQ(read.kept, profile.kept);
  EXPECT_EQ(read.model, profile.model);
  EXPECT_EQ(read.scorer, profile.scorer);
  EXPECT_EQ(read.model_name, profile.model_name);
  EXPECT_EQ(read.n_samples, 16);
  EXPECT_EQ(read.n_tokens, 2000);
  EXPECT_EQ(read.n_decode, 64);
  EXPECT_EQ(read.seed, profile.seed);
  EXPECT_EQ(read.date, profile.date);
  EXPECT_EQ(read.tool, profile.tool);
  EXPECT_EQ(code_of([&] { profile.save("/no/such/folder/profile.json"); }), ErrorCode::kIo);
}

TEST_F(TableFiles, BadProfilesAreRefused) {
  const std::string any = R"({"format":"winnow-lu-kv-profile","version":1,"model":"","scorer":"",)";
  const std::string head = any + R"("n_layer":1,)";
  for (const std::string& text : {std::string("{}"), std::string("[1]"), std::string("nonsense"), head + "}",
                                  head + R"("n_kv_head":1,"ratios":[0.5],"kept":[[[0.5,0.5]]]})",
                                  head + R"("n_kv_head":1,"ratios":[0.5],"kept":[]})",
                                  head + R"("n_kv_head":1,"ratios":[0.5,0.4],"kept":[[[0.5]],[[0.5]]]})",
                                  head + R"("n_kv_head":1,"ratios":[0.5],"kept":[[[1.5]]]})",
                                  head + R"("n_kv_head":1,"ratios":[1.0],"kept":[[[1]]]})",
                                  any + R"("n_layer":4,"n_kv_head":1073741824,"ratios":[0.5],"kept":[]})",
                                  std::string(R"({"format":"winnow-lu-kv-profile","version":2})")}) {
    EXPECT_EQ(code_of([&] { UtilityProfile::load(write(text)); }), ErrorCode::kBadFile) << text;
  }
}

UtilityProfile one_head() {
  UtilityProfile profile;
  profile.heads = {1};
  profile.ratios = {0.25, 0.5};
  profile.kept = {0.3125, 0.625};
  profile.model = UtilityProfile::model_text(0x0123456789ABCDEF);
  profile.scorer = EvictionOptions::parse("lu-kv-snapkv").scorer_text();
  return profile;
}

TEST_F(TableFiles, EveryChangedByteOfATableIsFound) {
  one_head().save(path_);
  const std::string whole = read_input(path_, input::kProfile);
  EXPECT_NO_THROW(UtilityProfile::load(path_));
  std::size_t first = whole.find("\"ratios\""), last = whole.find("\"checksum\"");
  for (std::size_t i = first; i < last; ++i) {
    if (whole[i] < '0' || whole[i] > '9') continue;
    std::string changed = whole;
    changed[i] = whole[i] == '3' ? '4' : '3';
    EXPECT_EQ(code_of([&] { UtilityProfile::load(write(changed)); }), ErrorCode::kBadFile) << changed;
  }
  for (std::size_t length = 0; length + 2 < whole.size(); length += 7) {
    EXPECT_EQ(code_of([&] { UtilityProfile::load(write(whole.substr(0, length))); }), ErrorCode::kBadFile) << length;
  }
}

TEST_F(TableFiles, AProfileIsFoundByModelAndScorer) {
  namespace fs = std::filesystem;
  const fs::path folder = path_ + ".folder";
  fs::create_directories(folder);
  ASSERT_EQ(setenv("WINNOW_PROFILES", folder.c_str(), 1), 0);
  const auto prepared = [](const char* method, std::uint64_t model) {
    EvictionOptions options = EvictionOptions::parse(method);
    options.find_profile(model);
    options.validate();
    return options;
  };
  std::string message;
  const auto refusal = [&](const char* method, std::uint64_t model) {
    return code_of([&] { prepared(method, model); }, &message);
  };
  constexpr std::uint64_t kModel = 0x0123456789ABCDEF;
  EXPECT_EQ(refusal("lu-kv-snapkv", kModel), ErrorCode::kNotFound);
  EXPECT_NE(message.find("winnow calibrate"), std::string::npos) << message;

  // Other tools' files, and those of another version, are passed over.
  std::ofstream(folder / "a-foreign-one.json") << R"({"name": "some other tool"})";
  std::ofstream(folder / "a-later-one.json") << R"({"format": "winnow-lu-kv-profile", "version": 2})";
  one_head().save((folder / "any-name.json").string());
  EXPECT_EQ(prepared("lu-kv-snapkv", kModel).utility_profile->kept, one_head().kept);
  EXPECT_EQ(prepared("snapkv:layers=lu-kv,sinks=4", kModel).utility_profile->kept, one_head().kept);
  EXPECT_EQ(prepared("snapkv", kModel).utility_profile, nullptr);
  EXPECT_EQ(refusal("lu-kv-snapkv", kModel + 1), ErrorCode::kNotFound);
  EXPECT_EQ(refusal("lu-kv-snapkv:window=16", kModel), ErrorCode::kNotFound);
  EXPECT_EQ(refusal("lu-kv-keydiff", kModel), ErrorCode::kNotFound);

  // A profile that is named but does not fit is refused with the reason.
  one_head().save(path_);
  EXPECT_NO_THROW(prepared(("lu-kv-snapkv:profile=" + path_).c_str(), kModel));
  EXPECT_EQ(refusal(("lu-kv-snapkv:profile=" + path_).c_str(), kModel + 1), ErrorCode::kInvalidArgument);
  EXPECT_NE(message.find("another model"), std::string::npos) << message;
  EXPECT_EQ(refusal(("lu-kv-keydiff:profile=" + path_).c_str(), kModel), ErrorCode::kInvalidArgument);
  EXPECT_NE(message.find("scorer"), std::string::npos) << message;

  std::ofstream(folder / "a-damaged-one.json") << "{";
  EXPECT_EQ(refusal("lu-kv-snapkv", kModel), ErrorCode::kBadFile);
  unsetenv("WINNOW_PROFILES");
  fs::remove_all(folder);
}

}  // namespace
}  // namespace winnow
