#include <gtest/gtest.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "winnow/error.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

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

template <typename Call>
ErrorCode code_of(const Call& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.code();
  }
  return ErrorCode::kInternal;
}

TEST_F(TableFiles, HeadImportanceAveragesTheScoresOfAHead) {
  const HeadImportance read =
      HeadImportance::load(write(R"({"0-0": [1, 3], "0-1": [4], "1-0": 0.5, "1-1": [0], "2-0": [1], "2-1": [2]})"));
  EXPECT_EQ(read.n_layer, 3);
  EXPECT_EQ(read.n_head, 2);
  EXPECT_EQ(read.weight, (std::vector<double>{2, 4, 0.5, 0, 1, 2}));
}

TEST_F(TableFiles, HeadImportanceReadsAMatrix) {
  const HeadImportance read = HeadImportance::load(write("0.5\t1\t0\n0 0.25 1\n\n"));
  EXPECT_EQ(read.n_layer, 2);
  EXPECT_EQ(read.n_head, 3);
  EXPECT_EQ(read.weight, (std::vector<double>{0.5, 1, 0, 0, 0.25, 1}));
}

TEST_F(TableFiles, BadHeadFilesAreRefused) {
  for (const char* text :
       {"", "[]", "{}", "{", R"({"0-0": "x"})", R"({"0-0": [-1]})", R"({"0-0": []})", R"({"a": [1]})",
        R"({"0-1": [1]})", R"({"0-0": [1], "1-1": [1]})", R"({"0-0": [0]})", "1 2\n3\n", "1 x\n", "0 0\n", "1 -1\n",
        R"({"-1-0": [1]})", R"({"99999999-0": [1]})", R"({"0-0": [1e999]})"}) {
    EXPECT_EQ(code_of([&] { HeadImportance::load(write(text)); }), ErrorCode::kBadFile) << text;
  }
  EXPECT_EQ(code_of([&] { HeadImportance::load(path_ + ".missing"); }), ErrorCode::kIo);
  EXPECT_EQ(code_of([&] { EvictionOptions::parse("headkv:head-file=" + path_ + ".missing"); }), ErrorCode::kIo);
}

TEST_F(TableFiles, ProfileRoundTrips) {
  UtilityProfile profile;
  profile.n_layer = 2;
  profile.n_kv_head = 3;
  profile.ratios = {0.1, 0.5};
  for (int i = 0; i < 12; ++i) profile.kept.push_back(i / 12.0);
  profile.model = "tiny";
  profile.scorer = "snapkv:window=32";
  profile.save(path_);
  const UtilityProfile read = UtilityProfile::load(path_);
  EXPECT_EQ(read.n_layer, 2);
  EXPECT_EQ(read.n_kv_head, 3);
  EXPECT_EQ(read.ratios, profile.ratios);
  EXPECT_EQ(read.kept, profile.kept);
  EXPECT_EQ(read.model, profile.model);
  EXPECT_EQ(read.scorer, profile.scorer);
  EXPECT_EQ(code_of([&] { profile.save("/no/such/folder/profile.json"); }), ErrorCode::kIo);
}

TEST_F(TableFiles, BadProfilesAreRefused) {
  const std::string head = R"({"format":"winnow-lu-kv-profile","version":1,"model":"","scorer":"","n_layer":1,)";
  for (const std::string& text : {std::string("{}"), std::string("[1]"), std::string("nonsense"), head + "}",
                                  head + R"("n_kv_head":1,"ratios":[0.5],"kept":[[[0.5,0.5]]]})",
                                  head + R"("n_kv_head":1,"ratios":[0.5],"kept":[]})",
                                  head + R"("n_kv_head":1,"ratios":[0.5,0.4],"kept":[[[0.5]],[[0.5]]]})",
                                  head + R"("n_kv_head":1,"ratios":[0.5],"kept":[[[1.5]]]})",
                                  head + R"("n_kv_head":1,"ratios":[1.0],"kept":[[[1]]]})",
                                  std::string(R"({"format":"winnow-lu-kv-profile","version":2})")}) {
    EXPECT_EQ(code_of([&] { UtilityProfile::load(write(text)); }), ErrorCode::kBadFile) << text;
  }
}

}  // namespace
}  // namespace winnow
