// The small parts of the tool.

#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "cli/bench_rows.h"
#include "cli/command_line.h"
#include "cli/number_text.h"
#include "cli/output_file.h"
#include "cli/progress_bar.h"
#include "cli/sampling_flags.h"
#include "cli/text_file.h"
#include "cli/text_table.h"
#include "temporary_directory.h"

namespace winnow::cli {
namespace {

TEST(NumberText, Units) {
  EXPECT_EQ(count_text(0), "0");
  EXPECT_EQ(count_text(999), "999");
  EXPECT_EQ(count_text(1000), "1,000");
  EXPECT_EQ(count_text(-1234567), "-1,234,567");
  EXPECT_EQ(bytes_text(1023), "1023 B");
  EXPECT_EQ(bytes_text(1536), "1.5 KiB");
  EXPECT_EQ(bytes_text((std::size_t{1} << 30) - 1), "1.0 GiB");
  EXPECT_EQ(short_count_text(134515008), "135M");
  EXPECT_EQ(short_count_text(1.1e9), "1.1B");
}

TEST(WrapText, BreaksBetweenWords) {
  EXPECT_EQ(wrap_text("aa bb cc", 5, 0), "aa bb\ncc");
  EXPECT_EQ(wrap_text("aa bb cc", 7, 2), "aa bb\n  cc");
  EXPECT_EQ(wrap_text("unbreakable", 5, 0), "unbreakable");
}

// Tests have no terminal, so a bar prints lines for a log.
TEST(ProgressBar, SaysInALogHowFarItIs) {
  testing::internal::CaptureStderr();
  {
    ProgressBar bar("prefill", std::chrono::nanoseconds(0));
    bar.update(0, 0);
    bar.update(0, 200);
    bar.update(50, 200);
    bar.update(100, 200, "3,000 of 6,000 tokens");
  }
  const std::string said = testing::internal::GetCapturedStderr();
  EXPECT_EQ(said, "prefill: 0 %\nprefill: 25 %, 1 s left\nprefill: 3,000 of 6,000 tokens, 1 s left\n");

  testing::internal::CaptureStderr();
  {
    ProgressBar bar("prefill");
    for (int i = 0; i < 100; ++i) bar.update(i, 100);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");  // it ended at once
  EXPECT_LE(ProgressBar::kBetweenLines, std::chrono::seconds(12));
}

TEST(ProgressBar, LineIsShorterThanTheTerminal) {
  const auto half = [](std::size_t columns) { return ProgressBar::line("prefill", 0.5, "  3 s left", columns); };
  EXPECT_EQ(half(80), "prefill [===============               ]  50 %  3 s left");
  EXPECT_EQ(half(40), "prefill [====     ]  50 %  3 s left");
  EXPECT_EQ(half(20), "prefill []  50 %  3");
  for (std::size_t columns = 0; columns < 100; ++columns) {
    for (const std::string left : {"", "  3 s left", "  12345 s left"}) {
      EXPECT_LT(ProgressBar::line("answers", 1, left, columns).size(), std::max<std::size_t>(columns, 1)) << columns;
    }
  }
}

TEST(TextTable, AlignsCharactersNotBytes) {
  TextTable table({{"name", Align::kLeft}, {"t/s", Align::kRight}});
  table.row({"a", "1 ± 2"});
  table.row({"bb", "11 ± 2"});
  EXPECT_EQ(table.plain(), "name     t/s\na      1 ± 2\nbb    11 ± 2\n");
}

TEST(ParseNumbers, WholeStringsOnly) {
  EXPECT_EQ(parse_integer("-n", "-1", -1), -1);
  EXPECT_THROW(parse_integer("-n", "3x", 0), UsageError);
  EXPECT_THROW(parse_integer("-n", "", 0), UsageError);
  EXPECT_THROW(parse_integer("-n", "-2", -1), UsageError);
  EXPECT_FLOAT_EQ(parse_number("--temp", "0.25"), 0.25f);
  EXPECT_THROW(parse_number("--temp", "inf"), UsageError);
}

TEST(CommandLine, LastFlagCountsAndListsReplaceDefaults) {
  int n = 0;
  std::vector<int> list{512};
  std::vector<std::string> methods{"full"};
  std::string type, text;
  CommandLine line("tool", "", "", "");
  line.integer("-n,--predict", n, -1, "");
  line.integers("-d,--depth", list, 0, "");
  line.texts("--kv-evict", "METHOD", '\0', methods, "");
  line.text("--cache-type-k", "TYPE", type, "");
  line.text("-p,--prompt", "TEXT", text, "");
  ASSERT_TRUE(line.parse({"-n", "4", "-d", "0,128", "-n", "-1", "-d", "7", "-ctk", "q8_0", "--kv-evict", "a:b=1,c=2",
                          "-p", "-n is [a,b]"}));
  EXPECT_EQ(n, -1);
  EXPECT_EQ(list, (std::vector<int>{0, 128, 7}));
  EXPECT_EQ(methods, (std::vector<std::string>{"a:b=1,c=2"}));
  EXPECT_EQ(type, "q8_0");
  EXPECT_EQ(text, "-n is [a,b]");
}

TEST(CommandLine, NamesOfAFlag) {
  const Flag two{.group = "", .names = "--typical,--typical-p", .value = "X", .help = ""};
  EXPECT_EQ(two.variables(), (std::vector<std::string>{"WINNOW_ARG_TYPICAL", "WINNOW_ARG_TYPICAL_P"}));
  const Flag alias{.group = "", .names = "--cache-type-k", .value = "TYPE", .help = ""};
  EXPECT_EQ(alias.typed_names(), (std::vector<std::string>{"--cache-type-k", "-ctk"}));
  EXPECT_TRUE((Flag{.group = "", .names = "NAME", .value = "", .help = ""}).typed_names().empty());
}

TEST(SamplingFlags, BreakersHaveEscapes) {
  const auto breakers = [](std::vector<std::string> given) {
    SamplingFlags flags;
    flags.options.dry_multiplier = 1;
    flags.breakers = std::move(given);
    return sampling_options(flags).dry_sequence_breakers;
  };
  using Texts = std::vector<std::string>;
  EXPECT_EQ(breakers({"\\n"}), breakers({"\n"}));
  EXPECT_EQ(breakers({"\\n", "a\\\\n", R"(\t\r\"\')"}), (Texts{"\n", "a\\n", "\t\r\"'"}));
  EXPECT_EQ(breakers({R"(\q)", "\\"}), (Texts{R"(\q)", "\\"}));  // other backslashes stand for themselves
  EXPECT_EQ(breakers({"none"}), Texts());
  EXPECT_EQ(breakers({}), SamplingOptions().dry_sequence_breakers);
}

TEST(OutputFile, TwoOutputsToOneFileAreRefused) {
  const test::TemporaryDirectory directory;
  const std::string path = directory.file("out"), detour = directory.file("./out");
  EXPECT_NO_THROW(check_outputs({{"--json", path}, {"--csv", directory.file("other")}, {"-o", std::nullopt}}));
  EXPECT_NO_THROW(check_outputs({{"--json", "-"}, {"--csv", path}}));
  EXPECT_THROW(check_outputs({{"--json", "-"}, {"--csv", "-"}}), UsageError);
  EXPECT_THROW(check_outputs({{"--json", path}, {"--csv", path}}), UsageError);
  EXPECT_THROW(check_outputs({{"--json", path}, {"--csv", detour}}), UsageError);
  directory.write("out", "old");
  std::filesystem::create_symlink("out", directory.file("link"));
  EXPECT_THROW(check_outputs({{"--json", path}, {"--csv", directory.file("link")}}), UsageError);
}

TEST(TextFile, IsReadWithoutAByteOrderMark) {
  const test::TemporaryDirectory directory;
  EXPECT_EQ(read_text_file(directory.write("keys", "\xEF\xBB\xBFkey\n"), input::kKeys), "key");
  EXPECT_EQ(read_text_file(directory.write("plain", "key"), input::kKeys), "key");
}

TEST(BenchRows, MeanAndDeviation) {
  const MeanAndDeviation three = mean_and_deviation({1, 2, 3});
  EXPECT_DOUBLE_EQ(three.mean, 2);
  EXPECT_DOUBLE_EQ(three.deviation, 1);
  EXPECT_EQ(mean_and_deviation({5}).deviation, 0);
  BenchRow row;
  row.n_gen = 64;
  row.n_depth = 4096;
  row.samples_ns = {2'000'000'000};
  EXPECT_EQ(row.test(), "tg64 @ d4096");
  EXPECT_DOUBLE_EQ(row.samples_ts()[0], 32);
}

}  // namespace
}  // namespace winnow::cli
