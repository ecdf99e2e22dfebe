#include "winnow/entry_type.h"

#include <gtest/gtest.h>

#include "expect_error.h"
#include "winnow/error.h"

namespace winnow {
namespace {

TEST(EntryTypes, NamesGoBothWays) {
  for (const EntryType type : entry_types()) {
    EXPECT_EQ(parse_entry_type(entry_type_name(type)), type);
  }
}

TEST(EntryTypes, UnknownNamesAreRefusedWithTheList) {
  for (const char* name : {"", "F16", "f8", "f16 "}) {
    try {
      parse_entry_type(name);
      FAIL() << name;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kInvalidArgument);
      EXPECT_NE(std::string(error.what()).find("f32, f16, bf16, q8_0, q4_0, r4, r3"), std::string::npos);
    }
  }
}

TEST(EntryTypes, RowsHaveTheSizesOfTheirLayouts) {
  EXPECT_EQ(row_bytes(EntryType::kF32, 80), 320U);
  EXPECT_EQ(row_bytes(EntryType::kF16, 64), 128U);
  EXPECT_EQ(row_bytes(EntryType::kBF16, 64), 128U);
  EXPECT_EQ(row_bytes(EntryType::kQ8_0, 64), 68U);
  EXPECT_EQ(row_bytes(EntryType::kQ4_0, 128), 72U);
  EXPECT_EQ(row_bytes(EntryType::kR4, 64), 34U);
  EXPECT_EQ(row_bytes(EntryType::kR4, 80), 50U);  // five blocks of 16
  EXPECT_EQ(row_bytes(EntryType::kR4, 256), 132U);
  EXPECT_EQ(row_bytes(EntryType::kR3, 64), 26U);
  test::expect_error(ErrorCode::kUnsupported, "multiple of 16, and this model's is 24",
                     [&] { row_bytes(EntryType::kR4, 24); });
  test::expect_error(ErrorCode::kUnsupported, "multiple of 32, and this model's is 80",
                     [&] { row_bytes(EntryType::kQ8_0, 80); });
  test::expect_error(ErrorCode::kUnsupported, "multiple of 32, and this model's is 16",
                     [&] { row_bytes(EntryType::kQ4_0, 16); });
}

}  // namespace
}  // namespace winnow
