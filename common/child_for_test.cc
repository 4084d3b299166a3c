#include "common/child_for_test.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string_view>
#include <utility>

namespace parley {

ChildForTest::ChildForTest(const std::vector<std::string>& arguments) {
  int ends[2];
  EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  std::vector<std::string> words = {"child"};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  EXPECT_EQ(::posix_spawn(&pid_, "/proc/self/exe", &actions, nullptr, argv.data(), environ), 0);
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  char byte = 0;
  while (::read(ends[0], &byte, 1) == 1 && byte != '\n') first_line_ += byte;
  EXPECT_EQ(byte, '\n') << "it did not begin";
  output_ = FileDescriptor(ends[0]);
}

ChildForTest::~ChildForTest() { Kill(); }

int ChildForTest::Kill() {
  const pid_t pid = std::exchange(pid_, 0);
  if (pid == 0) return 0;
  ::kill(pid, SIGKILL);
  int status = 0;
  EXPECT_EQ(::waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 0;
}

std::vector<std::string> ChildForTest::OtherLines() {
  std::vector<std::string> lines(1);
  char bytes[4096];
  for (ssize_t size = 0; (size = ::read(output_.get(), bytes, sizeof(bytes))) > 0;) {
    for (const char byte : std::string_view(bytes, static_cast<size_t>(size))) {
      if (byte == '\n') {
        lines.emplace_back();
      } else {
        lines.back() += byte;
      }
    }
  }
  lines.pop_back();  // not ended
  return lines;
}

void TellParent(const std::string& line) {
  const std::string whole = line + "\n";
  (void)!::write(STDOUT_FILENO, whole.data(), whole.size());
}

}  // namespace parley
