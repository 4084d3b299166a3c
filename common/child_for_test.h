#ifndef PARLEY_COMMON_CHILD_FOR_TEST_H_
#define PARLEY_COMMON_CHILD_FOR_TEST_H_

#include <sys/types.h>

#include <string>
#include <vector>

#include "common/file_descriptor.h"

namespace parley {

// A test's own program in another role, as a process that the test may kill. The test's main looks
// at its arguments to see which role it has.
class ChildForTest {
 public:
  // Runs this program with these arguments and waits for its first line (TellParent); a child that
  // ends without one is a failure of the test.
  explicit ChildForTest(const std::vector<std::string>& arguments);
  ~ChildForTest();  // kills it
  ChildForTest(const ChildForTest&) = delete;
  ChildForTest& operator=(const ChildForTest&) = delete;

  const std::string& first_line() const { return first_line_; }

  // With SIGKILL. Its exit code where it had ended by itself, else 0; 0 too where it was killed
  // before.
  int Kill();

  // After Kill: the whole lines that it has written since the first one. It waits when 64 KiB of
  // them have not been read.
  std::vector<std::string> OtherLines();

 private:
  pid_t pid_ = 0;
  std::string first_line_;
  FileDescriptor output_;
};

// In the child: writes the line that its parent waits for, or a further one.
void TellParent(const std::string& line);

}  // namespace parley

#endif  // PARLEY_COMMON_CHILD_FOR_TEST_H_
