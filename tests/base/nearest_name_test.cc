#include "base/nearest_name.h"

#include <gtest/gtest.h>

namespace winnow {
namespace {

TEST(EditDistance, CountsSwapsAsOne) {
  EXPECT_EQ(edit_distance("", ""), 0);
  EXPECT_EQ(edit_distance("abc", ""), 3);
  EXPECT_EQ(edit_distance("snapkv", "snapvk"), 1);
  EXPECT_EQ(edit_distance("kitten", "sitting"), 3);
}

TEST(NearestName, SuggestsOnlyWhatCanBeMeant) {
  const std::vector<std::string_view> names{"run", "chat", "bench", "info", "methods"};
  EXPECT_EQ(nearest_name("rnu", names), "run");
  EXPECT_EQ(nearest_name("method", names), "methods");
  EXPECT_EQ(nearest_name("benhc", names), "bench");
  EXPECT_EQ(nearest_name("BENCH", names), "bench");
  EXPECT_EQ(nearest_name("serve", names), "");
  EXPECT_EQ(nearest_name("", names), "");
  EXPECT_EQ(nearest_name("run", {}), "");
  EXPECT_EQ(nearest_name("methods" + std::string(1 << 20, 'x'), names), "methods");  // only 64 bytes count
}

TEST(NearestName, Sentences) {
  EXPECT_EQ(name_question("rnu", {"run", "chat"}), "; did you mean run?");
  EXPECT_EQ(name_question("serve", {"run", "chat"}), ";");
  EXPECT_EQ(name_advice("rnu", {"run", "chat"}), "did you mean 'run'?");
  EXPECT_EQ(name_advice("serve", {"run"}), "choose 'run'");
  EXPECT_EQ(name_advice("serve", {"run", "chat", "info"}), "choose 'run', 'chat' or 'info'");
}

}  // namespace
}  // namespace winnow
