// The program that the README shows: a user's own network and data, through the real coordinator
// and shard.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "absl/time/clock.h"
#include "common/clock/steady_now.h"
#include "tests/parity/loopback_cluster.h"

namespace {
std::string coordinator_program, shard_program, example_program, job_file, source, readme;
}  // namespace

namespace parley {
namespace {

std::string Read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

TEST(ExampleTest, AProgramOfOnesOwnTrainsItsNetwork) {
  const std::string text = Read(job_file);
  ASSERT_FALSE(text.empty()) << job_file;
  LoopbackCluster cluster(coordinator_program, shard_program, text);
  const std::string command = example_program + " --job=" + cluster.directory() +
                              "/job.textproto --coordinator=" + cluster.coordinator();
  EXPECT_EQ(std::system(command.c_str()), 0);
  EXPECT_EQ(cluster.Wait(), (std::vector<int>{0, 0}));
  const std::string history = Read(cluster.directory() + "/out/history.jsonl");
  const std::string name = "\"accuracy\":";
  const size_t last = history.rfind(name);
  ASSERT_NE(last, std::string::npos) << history;
  EXPECT_GE(std::strtod(history.c_str() + last + name.size(), nullptr), 0.95) << history;
}

// It is there to be read.
TEST(ExampleTest, ItHasAtMost130Lines) {
  const std::string text = Read(source);
  const auto lines = std::count(text.begin(), text.end(), '\n');
  EXPECT_GT(lines, 10) << source;
  EXPECT_LE(lines, 130);
}

// What is read there was compiled and has run.
TEST(ExampleTest, TheReadmeShowsAPartOfIt) {
  const std::string text = Read(readme);
  const std::string fence = "\n```cpp\n";
  const size_t begin = text.find(fence);
  ASSERT_NE(begin, std::string::npos) << readme;
  const size_t end = text.find("\n```\n", begin + fence.size());
  ASSERT_NE(end, std::string::npos) << readme;
  EXPECT_EQ(text.find(fence, end), std::string::npos) << "nobody compares a second one";
  const std::string part = text.substr(begin + fence.size(), end - begin - fence.size());
  EXPECT_NE(Read(source).find("\n" + part + "\n"), std::string::npos) << part;
  EXPECT_NE(part.find("BindModule("), std::string::npos) << part;
  EXPECT_NE(part.find("NextStep()"), std::string::npos) << part;
}

TEST(ExampleTest, TheCauseOfALostProgramOfOnesOwnSaysWhereItRan) {
  LoopbackCluster cluster(coordinator_program, shard_program,
                          Read(job_file) + "liveness: \"2s\"\n");
  const std::string job = "--job=" + cluster.directory() + "/job.textproto";
  const std::string coordinator = "--coordinator=" + cluster.coordinator();
  const pid_t program = fork();
  if (program == 0) {
    execl(example_program.c_str(), example_program.c_str(), job.c_str(), coordinator.c_str(),
          nullptr);
    _exit(127);
  }
  const std::string log = cluster.directory() + "/coordinator.log";
  const absl::Time end = SteadyNow() + absl::Minutes(1);
  while (Read(log).find("joined member=worker-0") == std::string::npos && SteadyNow() < end) {
    absl::SleepFor(absl::Milliseconds(5));
  }
  kill(program, SIGKILL);
  waitpid(program, nullptr, 0);
  EXPECT_EQ(cluster.Wait(), (std::vector<int>{1, 1}));
  const std::string where = "\nworker 0 at 127\\.0\\.0\\.1:[0-9]+ \\(pid " +
                            std::to_string(program) + "\\) has not been heard of";
  for (const std::string& said : {Read(log), Read(cluster.directory() + "/shard-0.log")}) {
    EXPECT_THAT(said, ::testing::ContainsRegex(where));
  }
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 7) return 2;
  coordinator_program = argv[1];
  shard_program = argv[2];
  example_program = argv[3];
  job_file = argv[4];
  source = argv[5];
  readme = argv[6];
  return RUN_ALL_TESTS();
}
