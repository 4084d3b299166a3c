#include "common/bounded_writer.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <string>

#include "common/clock/steady_now.h"

namespace parley {
namespace {

// So that the writer's thread is in its write, also on a busy machine.
constexpr absl::Duration kSoon = absl::Milliseconds(500);
constexpr absl::Duration kLong = absl::Minutes(1);

// A pipe that nobody reads until Read.
class BoundedWriterTest : public testing::Test {
 protected:
  BoundedWriterTest() {
    EXPECT_EQ(::pipe(ends_.data()), 0);
    EXPECT_GT(::fcntl(ends_[1], F_SETPIPE_SZ, 4096), 0);
  }
  ~BoundedWriterTest() override {
    for (const int fd : ends_) ::close(fd);
  }

  // So that no further byte goes in.
  void Fill() {
    const std::string full(4096, '-');
    ASSERT_EQ(::write(ends_[1], full.data(), full.size()), 4096);
  }

  std::string Read(size_t bytes) {
    std::string text(bytes, '\0');
    for (size_t have = 0; have < bytes;) {
      const ssize_t got = ::read(ends_[0], &text[have], bytes - have);
      if (got <= 0) return text.substr(0, have);
      have += static_cast<size_t>(got);
    }
    return text;
  }

  std::array<int, 2> ends_ = {-1, -1};
};

TEST_F(BoundedWriterTest, WhatIsAwaitedIsWritten) {
  BoundedWriter writer(ends_[1]);
  EXPECT_TRUE(writer.Await(kLong));
  for (const char* text : {"one ", "two "}) EXPECT_TRUE(writer.Add(text));
  EXPECT_TRUE(writer.Await(kLong));
  EXPECT_FALSE(writer.is_late());
  EXPECT_EQ(Read(8), "one two ");
}

TEST_F(BoundedWriterTest, NobodyWaitsForLongWhereNothingIsTaken) {
  Fill();
  BoundedWriter writer(ends_[1]);
  EXPECT_TRUE(writer.Add("stuck"));
  EXPECT_FALSE(writer.is_late());  // nobody has waited for it
  const absl::Time begin = SteadyNow();
  EXPECT_FALSE(writer.Await(kSoon));
  EXPECT_LT(SteadyNow() - begin, kLong);
  EXPECT_TRUE(writer.is_late());
}

TEST_F(BoundedWriterTest, WhatWasLateComesInItsOrder) {
  Fill();
  BoundedWriter writer(ends_[1]);
  EXPECT_TRUE(writer.Add("one "));
  EXPECT_FALSE(writer.Await(kSoon));
  EXPECT_TRUE(writer.Add("two "));
  Read(4096);
  EXPECT_TRUE(writer.Await(kLong));
  EXPECT_FALSE(writer.is_late());
  EXPECT_EQ(Read(8), "one two ");
}

TEST_F(BoundedWriterTest, WhatWaitsDoesNotGrowButForTheLastWord) {
  Fill();
  BoundedWriter writer(ends_[1]);
  int taken = 0;
  while (taken < 1000 && writer.Add(std::string(4096, 'x'))) ++taken;
  EXPECT_GE(taken, 32);
  EXPECT_LT(taken, 100);
  EXPECT_TRUE(writer.Add("last", /*whatever_waits=*/true));
  Read(4096 + taken * 4096);
  EXPECT_EQ(Read(4), "last");
}

TEST_F(BoundedWriterTest, ItGoesWhileItsThreadIsStuck) {
  Fill();
  {
    BoundedWriter writer(ends_[1]);
    EXPECT_TRUE(writer.Add("stuck"));
    EXPECT_FALSE(writer.Await(kSoon));
    EXPECT_TRUE(writer.Add("never written"));
  }
  Read(4096);
  EXPECT_EQ(Read(5), "stuck");
}

}  // namespace
}  // namespace parley
