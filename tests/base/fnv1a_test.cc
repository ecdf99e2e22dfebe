#include "base/fnv1a.h"

#include <gtest/gtest.h>

namespace winnow {
namespace {

// The values are the first rows of the published test vectors.
TEST(Fnv1a, IsThePublishedFunction) {
  EXPECT_EQ(fnv1a(""), 0xcbf29ce484222325U);
  EXPECT_EQ(fnv1a("a"), 0xaf63dc4c8601ec8cU);
  EXPECT_EQ(fnv1a("foobar"), 0x85944171f73967e8U);
  EXPECT_EQ(fnv1a("\xff"), 0xaf64724c8602eb6eU);  // bytes are unsigned
}

TEST(Fnv1a, PiecesAreTheWhole) {
  EXPECT_EQ(Fnv1a().add("foo").add("bar").value(), fnv1a("foobar"));
  EXPECT_EQ(Fnv1a().add("foobar", 3).value(), fnv1a("foo"));
  EXPECT_NE(Fnv1a(1).add("foo").value(), fnv1a("foo"));
}

TEST(HexText, HasSixteenDigits) {
  EXPECT_EQ(hex_text(0), "0000000000000000");
  EXPECT_EQ(hex_text(0x0123456789abcdefU), "0123456789abcdef");
  EXPECT_EQ(hex_text(~std::uint64_t{0}), "ffffffffffffffff");
}

}  // namespace
}  // namespace winnow
