#include "base/input_file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "expect_error.h"
#include "temporary_directory.h"
#include "winnow/error.h"

namespace winnow {
namespace {

using test::message_of;

class InputFileTest : public testing::Test {
 protected:
  std::string write(const std::string& content) const { return folder_.write("file", content); }

  const test::TemporaryDirectory folder_;
};

constexpr InputKind kSmall{"a small text", 100'000};

TEST_F(InputFileTest, WholeFilesUpToTheBound) {
  EXPECT_EQ(read_input(write(""), kSmall), "");
  const std::string text(100'000, 'x');
  EXPECT_EQ(read_input(write(text), kSmall), text);
  const std::string message = message_of(ErrorCode::kBadFile, [&] { read_input(write(text + "x"), kSmall); });
  EXPECT_NE(message.find("larger than 100000 bytes, the limit for a small text"), std::string::npos) << message;
}

TEST_F(InputFileTest, WhatNeverEndsIsReadNoFurtherThanTheBound) {
  message_of(ErrorCode::kBadFile, [] { read_input("/dev/zero", kSmall); });
  message_of(ErrorCode::kBadFile, [] { InputLines("/dev/zero", kSmall).next(); });
}

TEST_F(InputFileTest, FilesWithoutASizeAndPipes) {
  EXPECT_FALSE(read_input("/proc/self/status", kSmall).empty());
  const std::string path = folder_.file("pipe");
  ASSERT_EQ(mkfifo(path.c_str(), 0600), 0);
  std::thread writer([&] { std::ofstream(path) << "from a pipe\n"; });
  EXPECT_EQ(read_input(path, kSmall), "from a pipe\n");
  writer.join();
}

TEST_F(InputFileTest, WhatCannotBeRead) {
  EXPECT_NE(message_of(ErrorCode::kIo, [&] { read_input(folder_.file("none"), kSmall); }).find("No such file"),
            std::string::npos);
  EXPECT_NE(message_of(ErrorCode::kIo, [&] { read_input(folder_.path(), kSmall); }).find("is a directory"),
            std::string::npos);
}

TEST_F(InputFileTest, StreamsAreReadAsFarAsAskedFor) {
  const std::string text(300'000, 'y');
  InputStream stream(write(text));
  EXPECT_EQ(stream.size(), text.size());
  std::string part;
  stream.read(10, part);
  EXPECT_EQ(part.size(), 10u);
  EXPECT_FALSE(stream.ended());
  stream.read(200'000, part);
  EXPECT_EQ(part.size(), 200'000u);
  stream.read(1'000'000, part);
  EXPECT_EQ(part, text);
  EXPECT_TRUE(stream.ended());
  EXPECT_FALSE(InputStream("/dev/zero").size().has_value());
}

TEST_F(InputFileTest, Lines) {
  const auto lines_of = [&](const std::string& text, const InputKind& kind) {
    InputLines lines(write(text), kind);
    std::vector<std::string> all;
    while (const auto line = lines.next()) all.push_back(*line);
    return all;
  };
  using Lines = std::vector<std::string>;
  EXPECT_EQ(lines_of("", kSmall), Lines{});
  EXPECT_EQ(lines_of("\n", kSmall), Lines{""});
  EXPECT_EQ(lines_of("a\n\nbc", kSmall), (Lines{"a", "", "bc"}));
  // These lines are longer than one read, and `longest` has the largest allowed length.
  const std::string longest(100'000, 'z'), other(70'000, 'w');
  EXPECT_EQ(lines_of(longest + "\n" + other + "\n" + longest, kSmall), (Lines{longest, other, longest}));
  const std::string message = message_of(ErrorCode::kBadFile, [&] { lines_of("first\n" + longest + "z\n", kSmall); });
  EXPECT_NE(message.find("line 2 is larger than"), std::string::npos) << message;
}

}  // namespace
}  // namespace winnow
