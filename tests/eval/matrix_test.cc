#include "eval/run/matrix.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "winnow/error.h"

namespace winnow::eval {
namespace {

using Texts = std::vector<std::string>;

TEST(SplitMethods, CommasBetweenMethodsAndBetweenOptions) {
  EXPECT_EQ(split_methods("full,snapkv,tova"), (Texts{"full", "snapkv", "tova"}));
  EXPECT_EQ(split_methods("snapkv:window=16,pool=none,tova"), (Texts{"snapkv:window=16,pool=none", "tova"}));
  EXPECT_EQ(split_methods("full; snapkv:window=16,pool=none ;tova"),
            (Texts{"full", "snapkv:window=16,pool=none", "tova"}));
  EXPECT_EQ(split_methods("snapkv,window=16,sinks=4"), (Texts{"snapkv:window=16,sinks=4"}));
  EXPECT_EQ(split_methods("lu-kv:profile=a:b.json,tova"), (Texts{"lu-kv:profile=a:b.json", "tova"}));
  EXPECT_TRUE(split_methods("").empty());
  test::expect_error(ErrorCode::kInvalidArgument, "an option without a method",
                     [&] { split_methods("window=16,snapkv"); });
}

TEST(MakeCells, EveryMethodWithEveryBudget) {
  const auto cells = make_cells({"full", "snapkv", "tova"}, {"20%", "128"});
  ASSERT_EQ(cells.size(), 5U);
  EXPECT_EQ(cells[0].budget_text, "");
  EXPECT_EQ(cells[1].method, "snapkv");
  EXPECT_EQ(cells[1].budget_text, "20%");
  EXPECT_EQ(cells[4].method, "tova");
  EXPECT_EQ(cells[4].budget_text, "128");
}

TEST(MakeCells, RefusesWhatHasNoEffect) {
  test::expect_error(ErrorCode::kInvalidArgument, "no method is given", [&] { make_cells({}, {"20%"}); });
  test::expect_error(ErrorCode::kInvalidArgument, "no effect on the full cache",
                     [&] { make_cells({"full"}, {"20%"}); });
  test::expect_error(ErrorCode::kInvalidArgument, "'snapkv' needs a budget", [&] { make_cells({"snapkv"}, {}); });
  test::expect_error(ErrorCode::kInvalidArgument, "is given twice", [&] { make_cells({"snapkv", "snapkv"}, {"20%"}); });
  test::expect_error(ErrorCode::kInvalidArgument, "is given twice", [&] {
    make_cells({"snapkv", "snapkv:window=32"}, {"20%"});
  });  // the default value, given explicitly
  test::expect_error(ErrorCode::kInvalidArgument, "'20 percent' is not understood", [&] {
    make_cells({"snapkv"}, {"20%", "20 percent"});
  });
}

TEST(ShardText, OneToN) {
  EXPECT_EQ(Shard::parse("1/4").index, 0);
  EXPECT_EQ(Shard::parse("4/4").index, 3);
  EXPECT_EQ(Shard::parse("3/4").text(), "3/4");
  for (const char* wrong : {"0/4", "5/4", "1", "1/0", "a/b", "1/4x", "/", "-1/4"}) {
    test::expect_error(ErrorCode::kInvalidArgument, "a shard is written i/n", [&] { Shard::parse(wrong); });
  }
}

TEST(QuestionModes, Names) {
  EXPECT_EQ(parse_question_modes("both").size(), 2U);
  EXPECT_EQ(parse_question_modes("aware"), std::vector{QuestionMode::kAware});
  test::expect_error(ErrorCode::kInvalidArgument, "not 'neither'", [&] { parse_question_modes("neither"); });
}

}  // namespace
}  // namespace winnow::eval
