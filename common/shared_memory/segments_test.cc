#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <system_error>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/shared_memory/memory_segment.h"
#include "common/shared_memory/segment_heap.h"

namespace parley {
namespace {

std::string TextAt(const std::byte* data) { return reinterpret_cast<const char*>(data); }
void Write(std::byte* data, const std::string& text) {
  std::memcpy(data, text.c_str(), text.size() + 1);
}

TEST(MemorySegmentTest, APeerReadsWhatItsMakerWrites) {
  const auto segment = MemorySegment::Create(5000);
  ASSERT_TRUE(segment.ok()) << segment.status();
  EXPECT_GE((*segment)->bytes(), 5000u);
  EXPECT_EQ((*segment)->data()[4999], std::byte{0});
  const auto peer = MemorySegment::OfPeer((*segment)->fd());
  ASSERT_TRUE(peer.ok()) << peer.status();
  EXPECT_EQ((*peer)->bytes(), (*segment)->bytes());
  Write((*segment)->data() + 100, "gradient");
  EXPECT_EQ(TextAt((*peer)->data() + 100), "gradient");
}

TEST(MemorySegmentTest, NobodyShrinksItUnderAReaderOrMapsItToWrite) {
  const auto segment = MemorySegment::Create(8192);
  ASSERT_TRUE(segment.ok());
  const int fd = (*segment)->fd().get();
  EXPECT_NE(::ftruncate(fd, 4096), 0);
  EXPECT_NE(::ftruncate(fd, 1 << 20), 0);
  EXPECT_EQ(::mmap(nullptr, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0), MAP_FAILED);
  EXPECT_NE(::fcntl(fd, F_ADD_SEALS, 0), 0);  // and no seal comes or goes
}

TEST(MemorySegmentTest, WhatIsNotSafeToReadIsRefused) {
  const auto refused = [](int raw) {
    const FileDescriptor fd(raw);
    return absl::IsInvalidArgument(MemorySegment::OfPeer(fd).status());
  };
  const auto sealed = [](off_t bytes, int seals) {
    const int fd = ::memfd_create("peer", MFD_ALLOW_SEALING);
    EXPECT_EQ(::ftruncate(fd, bytes), 0);
    EXPECT_EQ(::fcntl(fd, F_ADD_SEALS, seals), 0);
    return fd;
  };
  const int all = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE;
  EXPECT_FALSE(refused(sealed(4096, all)));
  EXPECT_TRUE(refused(sealed(4096, 0)));
  for (const int missing : {F_SEAL_SHRINK, F_SEAL_GROW, F_SEAL_FUTURE_WRITE}) {
    EXPECT_TRUE(refused(sealed(4096, all & ~missing))) << missing;
  }
  EXPECT_TRUE(refused(sealed(0, all)));
  EXPECT_TRUE(refused(::open("/proc/self/exe", O_RDONLY)));
  EXPECT_TRUE(refused(::open("/dev/null", O_RDONLY)));
  int pipes[2];
  ASSERT_EQ(::pipe(pipes), 0);
  EXPECT_TRUE(refused(pipes[0]));
  ::close(pipes[1]);
  EXPECT_TRUE(refused(-1));
}

TEST(MemorySegmentTest, AnotherOneTakesItsPlaceAndReadersKeepTheFormer) {
  auto segment = MemorySegment::Create(4096);
  ASSERT_TRUE(segment.ok());
  std::byte* const address = (*segment)->data();
  Write(address, "lent");
  const auto reader = MemorySegment::OfPeer((*segment)->fd());
  ASSERT_TRUE(reader.ok());
  auto fresh = MemorySegment::InPlaceOf(**segment);
  ASSERT_TRUE(fresh.ok()) << fresh.status();
  segment->reset();  // unmaps nothing of the new one
  EXPECT_EQ((*fresh)->data(), address);
  EXPECT_EQ(TextAt(address), "");
  Write(address, "next");
  EXPECT_EQ(TextAt((*reader)->data()), "lent");
}

// From now on this process cannot set that seal, though it has been found to be there.
void ForgetFutureWriteSeal() {
  const auto argument = [](size_t i) {
    return static_cast<uint32_t>(offsetof(seccomp_data, args) + i * sizeof(uint64_t));
  };
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(1)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_ADD_SEALS, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, argument(2)),
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, F_SEAL_FUTURE_WRITE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EINVAL),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{std::size(filter), filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
      ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    std::_Exit(9);
  }
}

TEST(MemorySegmentTest, ThereIsNoneWhereItCannotBeSealed) {
  const auto former = MemorySegment::Create(4096);
  ASSERT_TRUE(former.ok());
  Write((*former)->data(), "lent");
  // Before Linux 5.1 it is not looked for.
  const int fd = ::memfd_create("probe", MFD_ALLOW_SEALING);
  if (::fcntl(fd, F_ADD_SEALS, F_SEAL_FUTURE_WRITE) != 0) GTEST_SKIP() << "an old kernel";
  ::close(fd);
  const auto tries = [&] {
    ForgetFutureWriteSeal();
    if (!absl::IsFailedPrecondition(MemorySegment::Create(4096).status())) std::_Exit(1);
    if (MemorySegment::InPlaceOf(**former).ok()) std::_Exit(2);
    std::_Exit(TextAt((*former)->data()) == "lent" ? 0 : 3);
  };
  EXPECT_EXIT(tries(), ::testing::ExitedWithCode(0), "");
}

// Of all processes of this machine.
size_t SharedMemoryInUse() {
  std::ifstream lines("/proc/meminfo");
  size_t kib = 0;
  for (std::string word; lines >> word;) {
    if (word == "Shmem:") lines >> kib;
  }
  EXPECT_NE(kib, 0u);
  return kib << 10;
}

// Where this process has a segment mapped or open.
size_t Holdings() {
  size_t count = 0;
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) count += absl::StrContains(line, "parley");
  for (const auto& each : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code gone;  // the one that lists them
    count += absl::StrContains(std::filesystem::read_symlink(each, gone).string(), "parley");
  }
  return count;
}

TEST(MemorySegmentTest, NothingIsLeftOfAProcessThatIsKilled) {
  constexpr size_t kBytes = 128 << 20;
  const size_t holdings = Holdings();
  // Other tests have shared memory too: what this one gives back is seen unless one of them takes
  // half as much in the same moment, each time.
  bool given_back = false;
  for (int round = 0; round < 10 && !given_back; ++round) {
    int pipes[2];
    ASSERT_EQ(::pipe(pipes), 0);
    const pid_t child = ::fork();
    if (child == 0) {
      const auto segment = MemorySegment::Create(kBytes);
      std::memset((*segment)->data(), 'x', kBytes);
      const int fd = (*segment)->fd().get();
      (void)!::write(pipes[1], &fd, sizeof(fd));
      ::pause();
      std::_Exit(0);
    }
    ::close(pipes[1]);
    int fd = -1;
    ASSERT_EQ(::read(pipes[0], &fd, sizeof(fd)), static_cast<ssize_t>(sizeof(fd)));
    ::close(pipes[0]);
    FileDescriptor sent(
        ::open(absl::StrCat("/proc/", child, "/fd/", fd).c_str(), O_RDONLY | O_CLOEXEC));
    auto survivor = MemorySegment::OfPeer(sent);
    struct stat about {};
    EXPECT_EQ(::fstat(sent.get(), &about), 0);
    sent = FileDescriptor();
    ::kill(child, SIGKILL);
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    EXPECT_EQ(about.st_nlink, 0u);  // no directory has it: what nobody holds is not there
    ASSERT_TRUE(survivor.ok()) << survivor.status();
    EXPECT_EQ((*survivor)->data()[kBytes - 1], std::byte{'x'});  // who has it still has it
    const size_t before = SharedMemoryInUse();
    survivor->reset();
    given_back = SharedMemoryInUse() + kBytes / 2 < before;
    EXPECT_EQ(Holdings(), holdings);
  }
  EXPECT_TRUE(given_back);
}

TEST(SegmentHeapTest, SmallBlocksShareASegmentAndLargeOnesHaveTheirOwn) {
  SegmentHeap heap(1 << 20);
  const auto a = heap.Allocate(100);
  const auto b = heap.Allocate(100);
  const auto large = heap.Allocate(2 << 20);
  ASSERT_TRUE(a.ok() && b.ok() && large.ok());
  const auto place_a = heap.Find(a->data, 100);
  const auto place_b = heap.Find(b->data + 50, 50);
  const auto place_large = heap.Find(large->data + (2 << 20) - 8, 8);
  ASSERT_TRUE(place_a.has_value() && place_b.has_value() && place_large.has_value());
  EXPECT_EQ(place_a->segment, place_b->segment);
  EXPECT_EQ(place_b->offset, place_a->offset + 128 + 50);
  EXPECT_NE(place_large->segment, place_a->segment);
  EXPECT_EQ(place_large->memory->data() + place_large->offset, large->data + (2 << 20) - 8);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(b->data) % 64, 0u);
}

TEST(SegmentHeapTest, FindsNothingWhereNoBlockIs) {
  SegmentHeap heap(0);
  std::string elsewhere(100, 'x');
  EXPECT_FALSE(heap.Find(elsewhere.data(), 10).has_value());
  auto block = heap.Allocate(4096);
  ASSERT_TRUE(block.ok());
  const std::byte* const data = block->data;
  EXPECT_FALSE(heap.Find(elsewhere.data(), 10).has_value());
  EXPECT_FALSE(heap.Find(data + 4000, 200).has_value());
  EXPECT_FALSE(heap.Find(data - 1, 10).has_value());
  EXPECT_FALSE(heap.Find(data, SIZE_MAX).has_value());
  *block = MemoryBlock();
  EXPECT_FALSE(heap.Find(data, 10).has_value());
}

TEST(SegmentHeapTest, RenewedBlocksAreAnotherSegmentAtTheSameAddress) {
  SegmentHeap heap(0);
  auto block = heap.Allocate(4096);
  ASSERT_TRUE(block.ok());
  Write(block->data, "lent");
  const auto before = heap.Find(block->data, 4);
  const auto reader = MemorySegment::OfPeer(before->memory->fd());
  ASSERT_TRUE(reader.ok());
  ASSERT_TRUE(heap.Renew(*block).ok());
  const auto after = heap.Find(block->data, 4);
  ASSERT_TRUE(after.has_value());
  EXPECT_NE(after->segment, before->segment);
  EXPECT_EQ(TextAt(block->data), "");
  EXPECT_EQ(TextAt((*reader)->data()), "lent");
}

TEST(SegmentHeapTest, OnlyABlockWithASegmentOfItsOwnIsRenewed) {
  SegmentHeap heap(1 << 20);
  const auto shared = heap.Allocate(100);
  ASSERT_TRUE(shared.ok());
  EXPECT_TRUE(absl::IsInvalidArgument(heap.Renew(*shared)));
  MemoryBlock foreign;
  EXPECT_TRUE(absl::IsInvalidArgument(heap.Renew(foreign)));
}

TEST(SegmentHeapTest, BlocksOutliveTheHeap) {
  absl::StatusOr<MemoryBlock> block;
  {
    SegmentHeap heap(1 << 20);
    block = heap.Allocate(100);
  }
  ASSERT_TRUE(block.ok());
  Write(block->data, "still there");
  EXPECT_EQ(TextAt(block->data), "still there");
}

}  // namespace
}  // namespace parley
