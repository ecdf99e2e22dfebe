#include "base/atomic_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <thread>
#include <vector>

#include "expect_error.h"
#include "temporary_directory.h"
#include "winnow/error.h"

namespace winnow {
namespace {

class AtomicFileTest : public ::testing::Test {
 protected:
  std::string content() const { return test::read_bytes(path_); }
  std::size_t n_files() const { return folder_.names().size(); }
  unsigned mode() const {
    struct stat info = {};
    EXPECT_EQ(stat(path_.c_str(), &info), 0);
    return info.st_mode & 0777U;
  }

  const test::TemporaryDirectory folder_;
  const std::string path_ = folder_.file("file");
};

TEST_F(AtomicFileTest, TakesThePlaceOfTheOldOne) {
  write_file(path_, "old");
  AtomicFile file(path_);
  file.write("ne");
  file.write("w");
  EXPECT_EQ(content(), "old");  // before the commit
  file.commit();
  EXPECT_EQ(content(), "new");
  EXPECT_EQ(n_files(), 1U);
}

TEST_F(AtomicFileTest, WhatIsNotCommittedLeavesNothing) {
  write_file(path_, "old");
  { AtomicFile(path_).write("half"); }
  EXPECT_EQ(content(), "old");
  EXPECT_EQ(n_files(), 1U);
}

TEST_F(AtomicFileTest, HasTheRightsOfANewFileOrFewer) {
  const mode_t before = umask(022);
  write_file(path_, "for all");
  EXPECT_EQ(mode(), 0644U);
  write_file(path_, "for one", 0600);
  EXPECT_EQ(mode(), 0600U);
  umask(before);
}

TEST_F(AtomicFileTest, KeepsThePermissionsOfTheOldOne) {
  const mode_t before = umask(077);
  write_file(path_, "old");
  ASSERT_EQ(chmod(path_.c_str(), 0640), 0);
  write_file(path_, "new");
  EXPECT_EQ(mode(), 0640U);
  umask(before);
}

TEST_F(AtomicFileTest, ASymbolicLinkStays) {
  const std::string link = folder_.file("link"), outer = folder_.file("outer");
  std::filesystem::create_symlink("file", link);
  std::filesystem::create_symlink(link, outer);
  for (const std::string text : {"new", "newer"}) {  // the first time, nothing is behind the links
    write_file(outer, text);
    EXPECT_EQ(content(), text);
    EXPECT_TRUE(std::filesystem::is_symlink(link));
    EXPECT_TRUE(std::filesystem::is_symlink(outer));
  }
  EXPECT_EQ(n_files(), 3U);
  const std::string circle = folder_.file("circle");
  std::filesystem::create_symlink("circle", circle);
  test::expect_error(ErrorCode::kIo, "cannot write '" + circle + "'", [&] { write_file(circle, "x"); });
}

TEST_F(AtomicFileTest, APipeStays) {
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  test::expect_error(ErrorCode::kIo, "a device or a pipe", [&] { write_file(path_, "x"); });
  EXPECT_TRUE(std::filesystem::is_fifo(path_));
  EXPECT_EQ(n_files(), 1U);
}

TEST_F(AtomicFileTest, ANewOneSparesWhatIsThere) {
  AtomicFile first(path_), second(path_);
  first.write("first");
  second.write("second");
  EXPECT_TRUE(first.commit_new());
  EXPECT_FALSE(second.commit_new());
  EXPECT_EQ(content(), "first");
}

TEST_F(AtomicFileTest, ManyWritersNeverMix) {
  const std::string a(100000, 'a'), b(100000, 'b');
  std::vector<std::thread> threads;
  for (const std::string& text : {a, b}) {
    threads.emplace_back([&, text] {
      for (int i = 0; i < 20; ++i) write_file(path_, text);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_TRUE(content() == a || content() == b);
  EXPECT_EQ(n_files(), 1U);
}

TEST_F(AtomicFileTest, WhatCannotBeWrittenIsSaid) {
  for (const std::string& path : {folder_.file("none/file"), folder_.path() + "/file/below"}) {
    write_file(path_, "a file, not a folder");
    try {
      write_file(path, "x");
      ADD_FAILURE() << path;
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), ErrorCode::kIo);
      EXPECT_NE(std::string(error.what()).find("cannot write '" + path + "'"), std::string::npos) << error.what();
    }
  }
  test::expect_error(ErrorCode::kIo, "Is a directory", [&] { write_file(folder_.path(), "x"); });  // a folder
  EXPECT_EQ(n_files(), 1U);
}

TEST_F(AtomicFileTest, FailuresOfADescriptorAreErrno) {
  const int full = open("/dev/full", O_WRONLY);
  if (full < 0) GTEST_SKIP() << "there is no /dev/full";
  EXPECT_EQ(write_all(full, "x"), ENOSPC);
  EXPECT_EQ(write_all(full, ""), 0);
  close(full);
}

}  // namespace
}  // namespace winnow
