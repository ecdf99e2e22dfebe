#include "base/running_text.h"

#include <gtest/gtest.h>

#include "expect_error.h"

namespace winnow {
namespace {

TEST(RunningText, LinesEndAlikeWhateverWroteThem) {
  const std::string plain = "One\n\ntwo\nthree\n";
  for (const char* text : {"One\n\ntwo\nthree\n", "One\r\n\r\ntwo\r\nthree\r\n", "One\r\rtwo\rthree\r",
                           "\xEF\xBB\xBFOne\r\n\ntwo\rthree\r\n"}) {
    EXPECT_EQ(running_text(text, "novel.txt"), plain);
  }
  EXPECT_EQ(running_text("", "novel.txt"), "");
  EXPECT_EQ(with_plain_line_ends("\r\n\r"), "\n\n");
}

TEST(RunningText, WhatIsNotUtf8IsNamedWithItsByte) {
  const std::string latin1 = "The caf\xE9 of Soho";
  test::expect_error(ErrorCode::kBadFile, "'novels/a.txt' is not UTF-8 at byte 7: convert it",
                     [&] { running_text(latin1, "novels/a.txt"); });
  test::expect_error(ErrorCode::kBadFile, "at byte 3", [] { running_text("abc\xC3", "cut.txt"); });  // cut character
}

}  // namespace
}  // namespace winnow
