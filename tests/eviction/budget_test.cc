#include <gtest/gtest.h>

#include <limits>

#include "expect_error.h"
#include "winnow/error.h"
#include "winnow/eviction.h"

namespace winnow {
namespace {

using test::expect_error;
using Unit = Budget::Unit;

EntryBytes entry_of(double stored) { return {.stored = stored, .f16_rows = 256}; }

TEST(Budget, ReadsItsUnits) {
  const struct {
    const char* text;
    Unit unit;
    double amount;
  } cases[] = {
      {"512", Unit::kTokens, 512},
      {"1", Unit::kTokens, 1},
      {"2147483647", Unit::kTokens, 2147483647.0},
      {"20%", Unit::kFraction, 0.2},
      {"100%", Unit::kFraction, 1.0},
      {"12.5%", Unit::kFraction, 0.125},
      {"0.1%", Unit::kFraction, 0.001},
      {"64MiB", Unit::kBytes, 67108864},
      {"1.5KiB", Unit::kBytes, 1536},
      {"2GiB", Unit::kBytes, 2147483648.0},
      {"3KB", Unit::kBytes, 3000},
      {"3MB", Unit::kBytes, 3e6},
      {"3GB", Unit::kBytes, 3e9},
      {"100B", Unit::kBytes, 100},
      {"5%bytes", Unit::kByteFraction, 0.05},
      {"12.5%bytes", Unit::kByteFraction, 0.125},
      {"100%bytes", Unit::kByteFraction, 1.0},
      {"kl=0.02", Unit::kLoss, 0.02},
      {"kl=10", Unit::kLoss, 10},
      {"kl=0.0005", Unit::kLoss, 0.0005},
  };
  for (const auto& c : cases) {
    const Budget budget = Budget::parse(c.text);
    EXPECT_EQ(budget.unit, c.unit) << c.text;
    EXPECT_DOUBLE_EQ(budget.amount, c.amount) << c.text;
    const Budget again = Budget::parse(budget.text());
    EXPECT_EQ(again.unit, budget.unit) << budget.text();
    EXPECT_EQ(again.amount, budget.amount) << budget.text();
  }
}

TEST(Budget, PrintsAsAPersonWouldWrite) {
  for (const char* text : {"512", "20%", "12.5%", "33.3%", "64MiB", "1GiB", "3KiB", "100B", "1000000", "5%bytes",
                           "12.5%bytes", "kl=0.02", "kl=0.0001", "kl=1"}) {
    EXPECT_EQ(Budget::parse(text).text(), text);
  }
}

TEST(Budget, RefusesEverythingElse) {
  for (const char* text : {"",          "0",           "-5",
                           "-1%",       "0%",          "200%",
                           "100.1%",    "abc",         "1e99",
                           "1e3",       "0x10",        "nan",
                           "inf",       "5.5",         "%",
                           "MiB",       "0MiB",        "0.0001B",
                           "12 %",      " 12",         "12 ",
                           "+5",        "20%%",        "1..5%",
                           "5TiB",      "99999999999", "99999999999999999999GiB",
                           "0.5",       ".",           "5%byte",
                           "5bytes",    "%bytes",      "0%bytes",
                           "101%bytes", "-5%bytes",    "5%%bytes",
                           "5 %bytes",  "kl=",         "kl",
                           "kl=0",      "kl=-0.1",     "kl=0.00009",
                           "kl=10.1",   "kl=1e-2",     "kl=2%",
                           "kl=nan",    "KL=0.02",     "kl = 0.02"}) {
    try {
      Budget::parse(text);
      ADD_FAILURE() << "'" << text << "' was taken";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument) << text;
      EXPECT_NE(std::string(error.what()).find("64MiB"), std::string::npos) << error.what();  // names a valid form
    }
  }
}

TEST(Budget, AmountsThatNoTextCouldGiveAreRefused) {
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN(), kInfinity = std::numeric_limits<double>::infinity();
  for (const Unit unit : {Unit::kTokens, Unit::kFraction, Unit::kBytes, Unit::kByteFraction, Unit::kLoss}) {
    for (const double amount : {0.0, -1.0, kNan, kInfinity, -kInfinity}) {
      expect_error(ErrorCode::kInvalidArgument, "out of range", [&] { Budget{unit, amount}.validate(); });
    }
  }
  for (const Unit unit : {Unit::kFraction, Unit::kByteFraction}) {
    Budget{unit, 1}.validate();
    expect_error(ErrorCode::kInvalidArgument, "a budget of 1.5 of the prompt", [&] { Budget{unit, 1.5}.validate(); });
  }
  for (const char* text : {"512", "20%", "5%bytes", "64MiB", "kl=0.0001", "kl=10"}) Budget::parse(text).validate();
  EXPECT_EQ((Budget{Unit::kBytes, 2048.5}.text()), "2KiB");
}

TEST(Budget, TotalsAreExactAndRoundHalvesUp) {
  EXPECT_EQ(Budget::parse("512").total_entries(4096, 90, entry_of(256)), 512 * 90);
  EXPECT_EQ(Budget::parse("512").total_entries(100, 90, entry_of(256)), 100 * 90);  // at most all entries
  EXPECT_EQ(Budget::parse("20%").total_entries(4096, 90, entry_of(256)), 73728);
  EXPECT_EQ(Budget::parse("50%").total_entries(5, 1, entry_of(256)), 3);       // 2.5
  EXPECT_EQ(Budget::parse("14.5%").total_entries(100, 1, entry_of(256)), 15);  // 14.5, which 0.145 * 100 falls short of
  EXPECT_EQ(Budget::parse("14.4%").total_entries(100, 1, entry_of(256)), 14);
  EXPECT_EQ(Budget::parse("100%").total_entries(7, 3, entry_of(256)), 21);
  EXPECT_EQ(Budget::parse("1KiB").total_entries(4096, 90, entry_of(260)), 3);  // rounded down, so that they fit
  EXPECT_EQ(Budget::parse("100B").total_entries(4096, 90, entry_of(260)), 0);
}

TEST(Budget, APartOfTheBytesIsTakenOfF16RowsAndSpentOnWhatIsStored) {
  const Budget budget = Budget::parse("5%bytes");
  EXPECT_EQ(budget.total_entries(2000, 90, entry_of(256)), 9000);   // positions cost nothing here
  EXPECT_EQ(budget.total_entries(2000, 90, entry_of(260)), 8861);   // f16: 8861.5
  EXPECT_EQ(budget.total_entries(2000, 90, entry_of(72)), 32000);   // r4
  EXPECT_EQ(budget.total_entries(2000, 90, entry_of(10)), 180000);  // at most all entries
  EXPECT_TRUE(budget.is_relative());
  EXPECT_FALSE(Budget::parse("64MiB").is_relative());
}

TEST(Budget, ALossComesToNoMoreThanItsMost) {
  const Budget loss = Budget::parse("kl=0.02");
  EXPECT_EQ(loss.most().text(), "30%bytes");
  EXPECT_TRUE(loss.is_relative());
  EXPECT_EQ(loss.total_entries(2000, 90, entry_of(260)), loss.most().total_entries(2000, 90, entry_of(260)));
  EXPECT_EQ(Budget::parse("5%bytes").most().text(), "5%bytes");
}

}  // namespace
}  // namespace winnow
