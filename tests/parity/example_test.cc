// The program that the README shows: a user's own network and data, through the real coordinator
// and shard.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>

#include "tests/parity/loopback_cluster.h"

namespace {
std::string coordinator_program, shard_program, example_program, job_file, source;
}  // namespace

namespace parley {
namespace {

TEST(ExampleTest, AProgramOfOnesOwnTrainsItsNetwork) {
  std::ifstream file(job_file);
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  ASSERT_FALSE(text.empty()) << job_file;
  LoopbackCluster cluster(coordinator_program, shard_program, text);
  const std::string command =
      example_program + " " + cluster.directory() + "/job.textproto " + cluster.coordinator();
  FILE* const pipe = popen(command.c_str(), "r");
  ASSERT_NE(pipe, nullptr);
  double accuracy = 0;
  EXPECT_EQ(std::fscanf(pipe, "accuracy %lf", &accuracy), 1);
  EXPECT_EQ(pclose(pipe), 0);
  std::printf("accuracy %.3f\n", accuracy);
  EXPECT_GE(accuracy, 0.95);
  EXPECT_EQ(cluster.Wait(), (std::vector<int>{0, 0}));
}

// It is there to be read.
TEST(ExampleTest, ItHasAtMostAHundredLines) {
  std::ifstream file(source);
  const auto lines = std::count(std::istreambuf_iterator<char>(file), {}, '\n');
  EXPECT_GT(lines, 10) << source;
  EXPECT_LE(lines, 100);
}

}  // namespace
}  // namespace parley

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  if (argc != 6) return 2;
  coordinator_program = argv[1];
  shard_program = argv[2];
  example_program = argv[3];
  job_file = argv[4];
  source = argv[5];
  return RUN_ALL_TESTS();
}
